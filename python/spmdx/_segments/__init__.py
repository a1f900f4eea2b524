# SPDX-License-Identifier: Apache-2.0
"""Segments of plans, and who compiles them."""
