# SPDX-License-Identifier: Apache-2.0
"""Devices of several kinds in one machine, and where a step runs over them."""
