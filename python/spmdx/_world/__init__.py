# SPDX-License-Identifier: Apache-2.0
"""The processes of the program, their devices, and the hardware below."""
