# SPDX-License-Identifier: Apache-2.0
"""Saves and loads, by all processes together."""
