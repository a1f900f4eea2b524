# SPDX-License-Identifier: Apache-2.0
"""Folders of tests are no packages: two modules of one name cannot be imported in one run."""

import pathlib
from collections import Counter

TESTS = pathlib.Path(__file__).resolve().parents[1]


def test_modules_of_tests_have_names_of_their_own():
    names = Counter(path.name for path in TESTS.rglob("test_*.py"))
    assert [name for name, times in names.items() if times > 1] == []
