# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of transformers read in slices; imports transformers."""
