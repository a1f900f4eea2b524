# SPDX-License-Identifier: Apache-2.0
"""Export: the program of a step as a file for another compiler, with its shardings."""

import pathlib

import torch

import spmdx._C as _C
from spmdx._export.program import Program
from spmdx._export.traced import Of
from spmdx._segments.primitive import primitive_text
from spmdx._targets.onnxruntime import require_onnx
from spmdx._targets.stablehlo import rows
from spmdx.errors import naming


def stablehlo(of: Of, sharded: bool = True) -> str:
    """Write the traced program of one step as StableHLO, for XLA's own partitioner.

    Nothing runs. Floats, as learning rates, are constants. A wrong index reads some row, and raises
    nothing.

    Args:
        of: tensors that are traced and were not computed yet, which the program gives in their
            order; or the function of a step, which is called once without arguments, up to its
            ``mark_step``, and whose effects are undone. It gives all that the step would compute.
        sharded: with annotations as attributes of Shardy: of the mesh, of arguments and results,
            and of values inside. Without, it is the program of one device.

    Returns:
        A module of MLIR whose function ``main`` takes what :func:`arguments` gives. Partition i
        is position i of the mesh. Arguments and results that nothing is said of have no sharding.

    Raises:
        ShardingError: an op draws random numbers or has no StableHLO; annotations have several
            meshes, stages, or shards of different sizes where values come in or go out; or the step
            reads a value before it ends. Says the op and the line.

    Example:
        >>> import torch, spmdx
        >>> mesh = spmdx.get_1d_mesh("data")
        >>> x = spmdx.mark_sharding(torch.ones(64, 4).to("spmdx"), mesh, ("data", None))
        >>> text = spmdx.export.stablehlo(x.exp())
        >>> "sdy.mesh" in text and '#sdy.sharding<@mesh, [{"data"}, {}]>' in text
        True

    Source:
        The StableHLO specification, version 1.0; Shardy, the sdy dialect.
    """
    with naming("export.stablehlo"):
        program = Program(of)
        with program.written_as("StableHLO"):
            text = primitive_text(program.segment, rows(), _C.stablehlo)
        return program.traced.stablehlo(text, sharded)


def arguments(of: Of) -> list[torch.Tensor]:
    """What ``main`` of :func:`stablehlo` takes, in its order.

    Args:
        of: the same as there.

    Returns:
        Whole tensors on the CPU; a run has to be given the shards of each that its sharding says.

    Raises:
        ShardingError: as there, or values are only planned, so that there are none.

    Example:
        >>> import torch, spmdx
        >>> x, y = torch.ones(2).to("spmdx"), torch.zeros(3).to("spmdx")
        >>> [tuple(t.shape) for t in spmdx.export.arguments([x.exp(), y * 2])]
        [(2,), (3,)]
    """
    with naming("export.arguments"):
        return Program(of).arguments()


def onnx(of: Of, path: str | pathlib.Path) -> None:
    """Write the traced program of one step as an ONNX model of one device.

    Nothing runs, and annotations are left out. Floats, as learning rates, are constants.

    Args:
        of: tensors that are traced, or the function of a step, as for :func:`stablehlo`.
        path: of the file. The model takes ``value_0`` and so on, as :func:`arguments` gives them,
            without those that nothing reads, and gives ``result_0`` and so on; and, where PyTorch
            might raise, ``holds``, a bool that is false if it would.

    Raises:
        ImportError: ONNX is not installed.
        ShardingError: an op draws random numbers or is not written as ONNX, or as for
            :func:`stablehlo`. Says the op and the line.

    Example:
        >>> import spmdx, tempfile, torch
        >>> x = torch.ones(2, 3).to("spmdx")
        >>> spmdx.export.onnx(x.exp(), tempfile.mkdtemp() + "/program.onnx")

    Source:
        The operators of ONNX, https://onnx.ai/onnx/operators
    """
    require_onnx()
    from onnx.checker import check_model

    from spmdx._targets.onnx_graph import onnx_model

    with naming("export.onnx"):
        program = Program(of)
        with program.written_as("ONNX"):
            model = onnx_model(program.results_alone(), check_model)
    pathlib.Path(path).write_bytes(model.SerializeToString())
