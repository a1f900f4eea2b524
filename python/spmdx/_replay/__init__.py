# SPDX-License-Identifier: Apache-2.0
"""Steps that are replayed without running their Python, and what guards them."""
