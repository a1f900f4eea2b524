# SPDX-License-Identifier: Apache-2.0
"""What PyTorch is taught of the device."""
