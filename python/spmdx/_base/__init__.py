# SPDX-License-Identifier: Apache-2.0
"""What all rooms stand on: arguments, Ctrl-C, and how torch.compile sees what PyTorch is taught."""
