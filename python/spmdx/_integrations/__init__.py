# SPDX-License-Identifier: Apache-2.0
"""What other frames ask of devices and strategies, said with spmdx; imports none of them."""
