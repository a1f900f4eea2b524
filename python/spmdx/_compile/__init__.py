# SPDX-License-Identifier: Apache-2.0
"""What torch.compile is told of the device."""
