# SPDX-License-Identifier: Apache-2.0
"""Every example in a public docstring runs and prints what it says, on 8 devices."""

import doctest
import importlib
import pkgutil

import pytest
import spmdx

FOUND = pkgutil.walk_packages(spmdx.__path__, "spmdx.")
MODULES = sorted(module.name for module in FOUND if module.name != "spmdx._C")


def examples(module):
    tests = doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(module))
    return [test for test in tests if test.examples]


@pytest.mark.parametrize("module", MODULES)
def test_examples_of_docstrings_run(module):
    if spmdx.runtime.global_runtime_device_count() != 8:
        spmdx.runtime.set_device_count(8)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    output = []
    for test in examples(module):
        spmdx.sync(wait=True)  # what the example before left behind may be on another mesh
        runner.run(test, out=output.append)
    assert runner.failures == 0, "".join(output)


def test_there_are_examples_to_run():
    assert sum(len(examples(module)) for module in MODULES) > 20


def test_every_public_function_has_an_example_or_is_data():
    lacking = [
        name
        for name in spmdx.__all__
        if callable(getattr(spmdx, name))
        and not isinstance(getattr(spmdx, name), type)
        and ">>>" not in (getattr(spmdx, name).__doc__ or "")
    ]
    assert lacking == ["get_global_mesh"]
