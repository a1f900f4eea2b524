# SPDX-License-Identifier: Apache-2.0
"""The compiler in force: segments are compiled behind the program's back, and kept on disk."""
