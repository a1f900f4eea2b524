# SPDX-License-Identifier: Apache-2.0
"""Meshes, partition specs, and tensors that say how they lie on devices."""
