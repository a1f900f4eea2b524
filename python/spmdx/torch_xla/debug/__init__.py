# SPDX-License-Identifier: Apache-2.0
"""torch_xla.debug: metrics and profiling."""
