# SPDX-License-Identifier: Apache-2.0
"""Run the notebooks of this folder in fresh kernels, and store what their cells show.

python examples/notebooks/run.py                        # all of them
python examples/notebooks/run.py data_parallel.ipynb    # one
"""

import contextlib
import os
import pathlib
import sys
import tempfile
import time

import nbformat
from nbclient import NotebookClient

FOLDER = pathlib.Path(__file__).resolve().parent
PACKAGE = FOLDER.parents[1] / "python"
PICTURES = ("data_parallel.png",)  # that the README shows; written by a notebook where it runs
SECONDS = 600  # for a cell


def executed(path, folder):
    """The notebook with the outputs of a run in a kernel of its own, in this folder."""
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook,
        timeout=SECONDS,
        kernel_name="python3",
        resources={"metadata": {"path": str(folder)}},
        record_timing=False,
    )
    with environment(folder):
        client.execute()
    return notebook


@contextlib.contextmanager
def environment(folder):
    """What the kernel sees: this tree's spmdx, one thread, nobody's settings."""
    before = dict(os.environ)
    paths = [str(PACKAGE), *filter(None, [before.get("PYTHONPATH")])]
    for name in before:
        if name.startswith("SPMDX_") or name in ("MPLBACKEND", "JUPYTER_COLUMNS"):
            del os.environ[name]
    os.environ.update(
        PYTHONPATH=os.pathsep.join(paths), OMP_NUM_THREADS="1", IPYTHONDIR=f"{folder}/.ipython"
    )
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def store(path):
    """Run a notebook, and write it with what its cells showed."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        notebook = executed(path, folder)
        nbformat.write(notebook, path)
        for picture in PICTURES:
            drawn = pathlib.Path(folder) / picture
            if drawn.exists():
                (FOLDER / picture).write_bytes(drawn.read_bytes())
    print(f"{path.name}: {time.perf_counter() - began:.0f} s")


def main():
    named = [FOLDER / pathlib.Path(name).name for name in sys.argv[1:]]
    for path in named or sorted(FOLDER.glob("*.ipynb")):
        store(path)


if __name__ == "__main__":
    main()
