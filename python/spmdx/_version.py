# SPDX-License-Identifier: Apache-2.0
"""The version of this package; the build reads it, too."""

__version__ = "0.1.0"
