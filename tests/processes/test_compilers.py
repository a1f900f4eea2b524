# SPDX-License-Identifier: Apache-2.0
"""Several processes would take kernels over in different steps, so that they are refused."""

from launch import run

ASKS = """
import spmdx

try:
    spmdx.set_compiler("inductor")
except spmdx.ShardingError as error:
    print(error)
spmdx.set_compiler(None)
"""


def test_a_compiler_for_several_processes_is_refused():
    said = "the program has 2 processes, which would use other kernels in other steps"
    assert all(said in told and "Expected one process" in told for told in run(ASKS, 2))
