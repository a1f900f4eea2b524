# SPDX-License-Identifier: Apache-2.0
"""What torch_xla refuses is refused here, with the same kinds of errors; and what is not here."""

import os
import warnings

import torch
import torch.distributed as dist
import torch_xla
import torch_xla.core.xla_model as xm
import torch_xla.distributed.spmd as xs
import torch_xla.runtime as xr
from common import line, refused
from torch.distributed.tensor import Partial, Replicate


def a_mesh_has_all_devices(devices):
    ids = list(range(devices))
    with refused(AssertionError, "must match the global number of devices"):
        xs.Mesh(ids[:-1], (devices - 1,))
    with refused(AssertionError, "must match mesh dimensions"):
        xs.Mesh(ids, (devices,), ("a", "b"))
    with refused(AssertionError, "Axis names must be unique"):
        xs.Mesh(ids, (devices, 1), ("a", "a"))
    with refused(AssertionError, "must match mesh size"):
        xs.Mesh(ids, (devices, 2))
    with refused(AssertionError, "Device IDs must be unique"):
        xs.Mesh([0] * devices, (devices,))
    with refused(AssertionError, "Device IDs must be less than mesh size"):
        xs.Mesh([*ids[:-1], devices], (devices,))


def a_mesh_says_what_it_is(devices):
    mesh = xs.Mesh(range(devices), (1, devices), ("a", "b"))
    assert mesh.size() == devices and dict(mesh.shape()) == {"a": 1, "b": devices}
    assert mesh.get_logical_mesh().tolist() == [list(range(devices))]
    assert mesh.get_axis_name_idx("b") == 1 and mesh.get_axis_name_idx("c") is None
    again = xs.Mesh.from_str(str(mesh))
    assert again.axis_names == mesh.axis_names and again.mesh_shape == mesh.mesh_shape
    assert xs.Mesh.from_str("no mesh") is None
    assert xs.get_1d_mesh("data").mesh_shape == (devices,)
    xs.set_global_mesh(mesh)
    assert xs.get_global_mesh() is mesh


def a_spec_fits_the_tensor(devices):
    t, mesh = torch.ones(4, 4).to("xla"), xs.Mesh(range(devices), (1, devices), ("a", "b"))
    with refused(AssertionError, "should be equal to the input rank"):
        xs.mark_sharding(t, mesh, (0,))
    for spec in ((-1, None), (2, None)):
        with refused(AssertionError, "out of bound"):
            xs.mark_sharding(t, mesh, spec)
    with refused(AssertionError, "at most once"):
        xs.mark_sharding(t, mesh, (0, 0))
    with refused(ValueError, "not defined in the given mesh"):
        xs.mark_sharding(t, mesh, ("z", None))


def a_second_mark_is_an_error(devices):
    t = torch.ones(8, 8).to("xla")
    xs.mark_sharding(t, line(devices), (0, None))
    xs.mark_sharding(t, line(devices), (0, None))
    with refused(RuntimeError, "Existing annotation must be cleared first"):
        xs.mark_sharding(t, line(devices), (None, 0))
    whole = torch.ones(8).to("xla")
    xs.mark_sharding(whole, line(devices), (None,))
    xs.mark_sharding(whole, line(devices), (0,))


def tensors_are_on_the_device_and_spmd_is_on(devices):
    with refused(RuntimeError, "Expected XLA tensor"):
        xs.mark_sharding(torch.ones(8), line(devices), (0,))
    del os.environ["XLA_USE_SPMD"]
    try:
        assert not xr.is_spmd()
        with refused(RuntimeError, "use_spmd"):
            xs.mark_sharding(torch.ones(8).to("xla"), line(devices), (0,))
    finally:
        xr.use_spmd()


def placements_that_mean_nothing(devices):
    marked = xs.mark_sharding(torch.ones(8, 2).to("xla"), line(devices), (0, None))
    with refused(ValueError):
        marked.redistribute(line(devices), (Replicate(), Replicate()))
    with refused(NotImplementedError):
        marked.redistribute(line(devices), (Partial(),))
    with refused(IndexError):
        from torch.distributed.tensor import Shard

        marked.redistribute(line(devices), (Shard(2),))
    with refused(ValueError, "Placements not available"):
        _ = (marked + 1).placements


def there_is_one_logical_device(devices):
    assert xr.world_size() == xr.global_device_count() == torch_xla.device_count() == 1
    assert xr.global_ordinal() == xm.get_ordinal() == 0 and xm.is_master_ordinal()
    assert torch_xla.device() == torch.device("xla:0") == torch.ones(1).to("xla").device
    assert xm.xla_real_devices([torch_xla.device()]) == ["CPU:0"]
    assert xr.addressable_runtime_device_count() == devices
    assert [row["name"] for row in xr.global_runtime_device_attributes()][
        -1
    ] == f"CPU:{devices - 1}"
    with refused(IndexError):
        torch_xla.device(1)
    with refused(AssertionError):
        dist.init_process_group("xla", init_method="xla://")


def eager_mode_is_taken_with_a_warning(devices):
    eager = torch_xla.experimental
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        with eager.eager_mode_context(True):
            assert eager.is_eager_mode()
            assert (torch.ones(4).to("xla") * 2).sum().item() == 8
    assert not eager.is_eager_mode()
    assert len(said) == 1 and "eager_mode(True)" in str(said[0].message)


def what_is_not_here_says_so_by_its_name(devices):
    x = torch.ones(4).to("xla")
    for ask, name in (
        (lambda: xr.use_spmd(auto=True), "use_spmd(auto=True)"),
        (lambda: torch_xla.launch(print), "torch_xla.launch"),
        (lambda: xm.all_reduce("sum", x, groups=[[0]]), "all_reduce(groups=…)"),
        (lambda: xm.all_gather(x, groups=[[0]]), "all_gather(groups=…)"),
        (lambda: xm.reduce_scatter("sum", x, 1.0, 0, 1), "xla_model.reduce_scatter"),
        (lambda: xm.collective_permute(x, [[0, 1]]), "xla_model.collective_permute"),
        (lambda: torch_xla._XLAC._get_xla_tensors_hlo([x]), "_XLAC._get_xla_tensors_hlo"),
        (lambda: torch_xla.set_custom_compile_options({"a": 1}), "set_custom_compile_options"),
    ):
        with refused(NotImplementedError, name):
            ask()
    for module in ("stablehlo", "core.xla_builder", "experimental.custom_kernel", "no_such_module"):
        with refused(ModuleNotFoundError, f"torch_xla.{module} is not in spmdx.torch_xla"):
            __import__(f"torch_xla.{module}")
    with refused(ModuleNotFoundError, "Write xm.save(state, path), and torch.load(path)"):
        __import__("torch_xla.utils.serialization")
    with refused(AttributeError, "no_such_name"):
        _ = xm.no_such_name
