# SPDX-License-Identifier: Apache-2.0
"""All nets that a strategy is searched for, by name."""

from search_images import IMAGES
from search_tables import TABLES
from search_transformers import TRANSFORMERS

NETS = {**TRANSFORMERS, **IMAGES, **TABLES}
