# SPDX-License-Identifier: Apache-2.0
"""The name "xla", where it leads, what goes up and comes down, and what is counted."""
