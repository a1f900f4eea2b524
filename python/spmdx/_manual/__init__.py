# SPDX-License-Identifier: Apache-2.0
"""Functions that are written for one device of a mesh."""
