# SPDX-License-Identifier: Apache-2.0
"""What a program says of its steps, its plans and its random numbers."""
