# SPDX-License-Identifier: Apache-2.0
"""Programs that do not use the device see the same PyTorch, whether spmdx is imported or not."""

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

FACTS = Path(__file__).parents[1] / "helpers" / "import_facts" / "import_facts.py"
GROUPS = (  # each is told by one process
    ("process", "names", "accelerators", "distributed"),
    ("tensors", "modules", "programs", "compile"),
)

# docs/importing.md explains each row. With lines, exactly these are added, and none is gone.
NAMES = {
    "names_of_torch": ("torch.spmdx is the device's module", ["spmdx"]),
    "names_of_tensor": (
        "the device's own names; the protocol of checkpoints exists for its tensors alone",
        [
            "__copy__",
            "__create_chunk_list__",
            "__create_write_items__",
            "__get_tensor_shard__",
            "_spmdx_annotation",
            "_spmdx_class",
            "is_spmdx",
            "spmdx",
        ],
    ),
    "names_of_module": ("module.spmdx() moves a module", ["spmdx"]),
    "names_of_packed_sequence": ("as PyTorch's own devices", ["is_spmdx", "spmdx"]),
    "overridable_functions": (
        "they list the names of Tensor",
        [
            "Tensor._shallow_copy",
            "Tensor.spmdx",
            *3 * ["_OnDevice.__get__"],
            "property.__get__",
        ],
    ),
    "testing_overrides": ("they list the names of Tensor", ["__get__", "spmdx"]),
    "safe_globals": ("files of the device's views are safe to load", ["_view_of", "_with_bits"]),
}
NAME = "a process has one device of the type PrivateUse1, and spmdx is its name"
COMPILED = "torch.compile is told of the device, and of its backend, once it is imported"
CHANGED = {
    "one_process_for_all_devices": "DataParallel takes whatever device there is",
    "paths_and_finders": COMPILED,
    "backends": COMPILED,
    "name_of_privateuse1": NAME,
    "device_of_privateuse1": NAME,
    "another_name_for_privateuse1": NAME,
    "optimizers_that_capture": NAME,  # in the text of an error
}


def tell(group: tuple[str, ...], imports: str, folder: Path) -> dict[str, str]:
    """The facts of a group, of a process with or without the import."""
    inductor = {"TORCHINDUCTOR_CACHE_DIR": str(folder), "TORCHINDUCTOR_COMPILE_THREADS": "1"}
    result = subprocess.run(
        [sys.executable, FACTS, imports, *group],
        env={**os.environ, **inductor, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def told(tmp_path_factory):
    """The facts of every group, without the import and with it."""
    folder = tmp_path_factory.mktemp("inductor")  # the second process reads what the first compiled
    return {g: [tell(g, imports, folder) for imports in ("without", "with")] for g in GROUPS}


@pytest.mark.parametrize("group", GROUPS, ids=" ".join)
@pytest.mark.on_the_cpu("CUDA, started by the first tensor, changes them, too")
def test_facts_are_those_without_the_import(told, group):
    plain, ours = told[group]
    assert list(plain) == list(ours)
    differences = {
        name: f"without:\n{text}\nwith:\n{ours[name]}"
        for name, text in plain.items()
        if text != ours[name] and name not in CHANGED and name not in NAMES
    }
    assert not differences, "\n\n".join(f"{name} {text}" for name, text in differences.items())


@pytest.mark.on_the_cpu("CUDA, started by the first tensor, changes them, too")
def test_what_differs_differs_as_documented(told):
    plain, ours = ({k: v for g in GROUPS for k, v in told[g][i].items()} for i in (0, 1))
    assert len(plain) == sum(len(told[g][0]) for g in GROUPS) > 80
    equal = [name for name in (*CHANGED, *NAMES) if plain[name] == ours[name]]
    assert not equal, "these no longer differ: take them out of the table"
    for name, (reason, expected) in NAMES.items():
        before, after = Counter(plain[name].split("\n")), Counter(ours[name].split("\n"))
        assert sorted((after - before).elements()) == expected, reason
        assert not before - after, name
