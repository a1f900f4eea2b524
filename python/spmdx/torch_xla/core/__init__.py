# SPDX-License-Identifier: Apache-2.0
"""torch_xla.core: the model of devices and steps."""
