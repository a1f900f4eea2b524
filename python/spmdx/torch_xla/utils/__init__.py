# SPDX-License-Identifier: Apache-2.0
"""torch_xla.utils: recomputation, and helpers of programs."""
