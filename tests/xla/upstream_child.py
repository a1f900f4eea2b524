# SPDX-License-Identifier: Apache-2.0
"""Runs the tests of one file of PyTorch/XLA as they are, and writes what became of each."""

import importlib.util
import json
import os
import sys
import traceback
import unittest

import spmdx.torch_xla


def name_of(test):
    """Of its class and method; a parametrized one has a number at its end."""
    return test.id().split(".", 1)[1].split(" ")[0]


class Written(unittest.TestResult):
    """Writes a line of JSON for each test."""

    def __init__(self, out):
        super().__init__()
        self._out, self._bad = out, {}

    def _say(self, test, what, why=""):
        name = name_of(test)
        self._out.write(json.dumps({"test": name, "what": what, "why": why}) + "\n")
        self._out.flush()

    def _failed(self, test, error):
        text = "".join(traceback.format_exception(*error))
        self._bad[test.id()] = text
        if not hasattr(test, "_testMethodName"):  # setUpClass: all tests of the class
            self._say(test, "failed", text)

    def addFailure(self, test, err):
        self._failed(test, err)

    def addError(self, test, err):
        self._failed(test, err)

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self._failed(test, err)

    def addSkip(self, test, reason):
        self._bad[test.id()] = None
        self._say(test, "skipped", reason)

    def stopTest(self, test):
        if test.id() in self._bad and self._bad[test.id()] is None:
            return
        text = self._bad.get(test.id(), "")
        self._say(test, "failed" if text else "passed", text)


def chosen(suite, wanted):
    for test in suite:
        if isinstance(test, unittest.TestSuite):
            yield from chosen(test, wanted)
        elif not wanted or name_of(test).rstrip("0123456789") in wanted or name_of(test) in wanted:
            yield test


def main(file, out, wanted):
    folder = os.path.dirname(os.path.abspath(file))
    sys.path[:0] = [folder, os.path.dirname(folder)]
    spmdx.torch_xla.install()
    spec = importlib.util.spec_from_file_location("upstream", file)
    module = importlib.util.module_from_spec(spec)
    sys.modules["upstream"] = module
    spec.loader.exec_module(module)
    tests = unittest.defaultTestLoader.loadTestsFromModule(module)
    with open(out, "w") as lines:
        unittest.TestSuite(chosen(tests, wanted)).run(Written(lines))


if __name__ == "__main__":
    path, target, names = sys.argv[1], sys.argv[2], sys.argv[3]
    sys.argv = [path, *sys.argv[4:]]
    main(path, target, set(filter(None, names.split(","))))
