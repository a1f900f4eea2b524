# SPDX-License-Identifier: Apache-2.0
"""What plans are made for: devices, the links between them, and which are in use."""
