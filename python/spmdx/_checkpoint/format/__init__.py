# SPDX-License-Identifier: Apache-2.0
"""What lies in the folder of a checkpoint, and what its files may say."""
