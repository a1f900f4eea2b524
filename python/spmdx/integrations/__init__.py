# SPDX-License-Identifier: Apache-2.0
"""Frames of other projects, run on device "spmdx"; each is imported by its own name."""
