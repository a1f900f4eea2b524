# SPDX-License-Identifier: Apache-2.0
"""What the package spmdx.torch_xla is made of, below the modules that bear torch_xla's names."""
