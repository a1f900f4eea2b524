# SPDX-License-Identifier: Apache-2.0
"""torch_xla._internal: of the internals of torch_xla, what programs ask."""
