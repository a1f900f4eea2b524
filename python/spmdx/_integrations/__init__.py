# SPDX-License-Identifier: Apache-2.0
"""What the public modules of `spmdx.integrations` are made of."""
