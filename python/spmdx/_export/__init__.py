# SPDX-License-Identifier: Apache-2.0
"""Programs for others: one step as a file that another compiler takes."""
