# SPDX-License-Identifier: Apache-2.0
"""Tests of modules run on several meshes."""

import pytest
from marked_modules import MESHES, make_mesh


@pytest.fixture(params=MESHES, ids=str)
def mesh(request):
    return make_mesh(request.param)
