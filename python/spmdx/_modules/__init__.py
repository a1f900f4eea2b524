# SPDX-License-Identifier: Apache-2.0
"""What says of whole modules how they are cut: plans that they bring, options of PyTorch."""
