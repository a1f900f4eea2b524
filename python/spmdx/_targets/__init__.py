# SPDX-License-Identifier: Apache-2.0
"""Compilers of segments: one module each, and what they share."""
