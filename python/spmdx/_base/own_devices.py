# SPDX-License-Identifier: Apache-2.0
"""The names that the device has: its own, and one more where a program says "xla"."""

NAMES = {"spmdx"}
