# SPDX-License-Identifier: Apache-2.0
"""Facts of torch.distributed, in a group of one process on the CPU."""

import copy
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from import_facts import error, fact, model, numbers
from torch import nn
from torch.distributed.checkpoint import state_dict as states
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import CPUOffloadPolicy, FullyShardedDataParallel, fully_shard
from torch.distributed.tensor import (
    DTensor,
    Replicate,
    Shard,
    distribute_tensor,
    ones,
    parallel,
)

dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)


def trained(net: nn.Module) -> list:
    """The parameters after one step."""
    steps = torch.optim.AdamW(net.parameters(), lr=0.1)
    net(numbers(2, 4)).square().sum().backward()
    steps.step()
    return list(net.state_dict().values())


@fact
def group():
    return dist.get_backend(), dist.get_world_size(), dist.get_backend_config()


@fact
def device_of_the_group():
    world = dist.group.WORLD
    return sorted(map(str, world._device_types)), dist.distributed_c10d._get_pg_default_device(
        world
    )


@fact
def group_without_a_backend():
    made = dist.new_group([0], backend=None)
    return dist.get_backend(made), dist.get_backend_config(made)


@fact
def backends_of_devices():
    ask = dist.get_default_backend_for_device
    backends = dict(dist.Backend.default_device_backend_map)
    return ask("cpu"), ask("cuda"), backends, dist.Backend.backend_list


@fact
def collectives():
    x, gathered = numbers(3), [torch.empty(3)]
    dist.all_reduce(x)
    dist.all_gather(gathered, x)
    dist.broadcast(x, 0)
    dist.barrier()
    return x, gathered, torch.distributed._functional_collectives.all_reduce(x, "sum", [0])


@fact
def collectives_of_objects():
    values = [None]
    dist.all_gather_object(values, {"x": numbers(2)})
    dist.broadcast_object_list(values, 0)
    return values


@fact
def data_parallel():
    net = nn.parallel.DistributedDataParallel(model())
    return trained(net), net.device_type


@fact
def sharded_without_a_mesh():
    net = fully_shard(model())
    return trained(net), type(net).__name__, net[0].weight.device_mesh


@fact
def sharded_over_a_mesh():
    net = fully_shard(model(), mesh=init_device_mesh("cpu", (1,)), reshard_after_forward=False)
    return trained(net), net[0].weight.placements


@fact
def sharded_and_offloaded():
    return error(fully_shard, model(), offload_policy=CPUOffloadPolicy())


@fact
def sharded_the_old_way():
    net = FullyShardedDataParallel(model(), device_id=torch.device("cpu"))
    return trained(net), net.compute_device


@fact
def sharded_the_old_way_without_a_device():
    return trained(FullyShardedDataParallel(model()))


@fact
def meshes():
    mesh = init_device_mesh("cpu", (1, 1), mesh_dim_names=("a", "b"))
    return mesh, mesh["a"], mesh.get_local_rank("b"), copy.deepcopy(mesh) == mesh


@fact
def meshes_of_accelerators():
    return error(init_device_mesh, "cuda", (1,)), error(dist.device_mesh.DeviceMesh, "cpu", [0])


@fact
def tensors_on_a_mesh():
    mesh = init_device_mesh("cpu", (1,))
    x = distribute_tensor(numbers(4, 2), mesh, [Shard(0)])
    y = DTensor.from_local(numbers(2, 2), mesh, [Replicate()])
    return x @ y, (x @ y).redistribute(mesh, [Replicate()]).full_tensor(), x.sum()


@fact
def new_tensors_on_a_mesh():
    mesh = init_device_mesh("cpu", (1,))
    return ones(2, 2, device_mesh=mesh, placements=[Shard(0)]).to_local(), mesh.device_type


@fact
def copies_of_tensors_on_a_mesh():
    x = distribute_tensor(numbers(4, 2), init_device_mesh("cpu", (1,)), [Shard(0)])
    return copy.deepcopy(x), copy.copy(x), nn.Parameter(x), x.__create_chunk_list__()


@fact
def parallelized_modules():
    plan = {"0": parallel.ColwiseParallel(), "3": parallel.RowwiseParallel()}
    net = parallel.parallelize_module(model(), init_device_mesh("cpu", (1,)), plan)
    return trained(net)


@fact
def pipelines():
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    stage = PipelineStage(model(), 0, 1, torch.device("cpu"))
    return ScheduleGPipe(stage, 2).step(numbers(4, 4))


@fact
def checkpoints():
    net = fully_shard(model(), mesh=init_device_mesh("cpu", (1,)))
    saved = {"net": net.state_dict(), "x": numbers(3), "step": 3}
    with tempfile.TemporaryDirectory() as folder:
        dcp.save(saved, checkpoint_id=folder)
        loaded = {"net": model().state_dict(), "x": torch.zeros(3), "step": 0}
        dcp.load(loaded, checkpoint_id=folder)
    return loaded


@fact
def checkpoints_written_meanwhile():
    with tempfile.TemporaryDirectory() as folder:
        dcp.async_save({"x": numbers(3)}, checkpoint_id=folder).result()
        loaded = {"x": torch.zeros(3)}
        dcp.load(loaded, checkpoint_id=folder)
    return loaded


@fact
def plans_of_checkpoints():
    planner = dcp.DefaultSavePlanner()
    planner.set_up_planner({"x": numbers(3), "y": nn.Parameter(numbers(2))}, is_coordinator=True)
    return [(item.index, item.type, item.tensor_data) for item in planner.create_local_plan().items]


@fact
def states_of_modules():
    net = fully_shard(model())
    options = states.StateDictOptions(full_state_dict=True, cpu_offload=True)
    return states.get_model_state_dict(net, options=options)


@fact
def device_of_a_mesh_less_state():
    return dist._state_dict_utils._offload_state_dict_to_cpu({"x": numbers(2)})


@fact
def one_process_for_all_devices():  # last: where there is a device, its module goes there
    return next(nn.DataParallel(model()).parameters()).device
