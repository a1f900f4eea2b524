# SPDX-License-Identifier: Apache-2.0
"""torch_xla.test: what training scripts print."""
