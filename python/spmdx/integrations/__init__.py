# SPDX-License-Identifier: Apache-2.0
"""Other frames on spmdx: each module imports its own when it is imported."""
