# SPDX-License-Identifier: Apache-2.0
"""Strategies that nobody wrote: searched for, shown, and applied."""
