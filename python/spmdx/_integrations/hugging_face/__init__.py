# SPDX-License-Identifier: Apache-2.0
"""What accelerate and the Trainer of transformers need to run on device "spmdx"."""
