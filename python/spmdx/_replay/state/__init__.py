# SPDX-License-Identifier: Apache-2.0
"""The Python state that a call of a function reads, and whether it is still what it was."""
