# SPDX-License-Identifier: Apache-2.0
"""What a plan decided, as tables and pictures."""
