# SPDX-License-Identifier: Apache-2.0
"""Files of tensors as other libraries write and read them."""
