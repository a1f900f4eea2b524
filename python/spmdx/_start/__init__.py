# SPDX-License-Identifier: Apache-2.0
"""What happens when spmdx is imported: the core is loaded, and settings are read."""
