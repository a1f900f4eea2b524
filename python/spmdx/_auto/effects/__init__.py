# SPDX-License-Identifier: Apache-2.0
"""What a step changes while it is planned: found, and put back."""
