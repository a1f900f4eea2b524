# SPDX-License-Identifier: Apache-2.0
"""What an accelerator and a strategy of Lightning do; their classes are made in integrations."""
