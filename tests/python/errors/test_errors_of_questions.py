# SPDX-License-Identifier: Apache-2.0
"""The whole messages about what cannot be answered of a tensor, or not inside a transform."""

import warnings

import pytest
import spmdx
import torch
from messages import cases, device, eight_devices, grid, marked, message_of


@pytest.fixture(scope="module", autouse=True)
def devices():
    eight_devices()


def unmarked():
    """A ShardedTensor whose annotation went away with its elements, which had as many dims."""
    x = marked(("i", None))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x.data = device(8)
    return x


def on_cpu():
    return torch.zeros(2).as_subclass(spmdx.ShardedTensor)


ROWS = "Sharding(Mesh(i=4, j=2), PartitionSpec('i', None))"
QUESTIONS = [
    (
        "minor_axis_first",
        lambda: marked((("j", "i"), None)).placements,
        "HERE: placements: DTensor placements cannot say Sharding(Mesh(i=4, j=2), "
        "PartitionSpec(('j', 'i'), None)). Expected whole axes, major first. Read .partition_spec"
        " instead.",
    ),
    (
        "part_of_an_axis",
        lambda: marked(("i:(2)2", None)).placements,
        "HERE: placements: DTensor placements cannot say Sharding(Mesh(i=4, j=2), "
        "PartitionSpec('i:(2)2', None)). Expected whole axes, major first. Read .partition_spec "
        "instead.",
    ),
    (
        "mesh_of_unmarked",
        lambda: unmarked().mesh,
        "HERE: mesh: the tensor has no sharding. Expected one that was annotated. Call "
        "spmdx.mark_sharding on it first.",
    ),
    (
        "spec_of_unmarked",
        lambda: unmarked().partition_spec,
        "HERE: partition_spec: the tensor has no sharding. Expected one that was annotated. Call "
        "spmdx.mark_sharding on it first.",
    ),
    (
        "placements_of_unmarked",
        lambda: unmarked().placements,
        "HERE: placements: the tensor has no sharding. Expected one that was annotated. Call "
        "spmdx.mark_sharding on it first.",
    ),
    (
        "shards_of_unmarked",
        lambda: unmarked().local_shards,
        "HERE: local_shards: the tensor has no sharding. Expected one that was annotated. Call "
        "spmdx.mark_sharding on it first.",
    ),
    (
        "load_unmarked",
        lambda: unmarked().load_local_shards_([]),
        "HERE: load_local_shards_: the tensor has no sharding. Expected one that was annotated. "
        "Call spmdx.mark_sharding on it first.",
    ),
    (
        "sharding_of_a_number",
        lambda: spmdx.get_sharding(3),
        "HERE: get_sharding: the first argument is a int. Expected a torch.Tensor. Pass a tensor, "
        "for a module one of its parameters.",
    ),
    (
        "annotation_of_none",
        lambda: spmdx.get_annotation(None),
        "HERE: get_annotation: the first argument is a NoneType. Expected a torch.Tensor. Pass a "
        "tensor, for a module one of its parameters.",
    ),
    (
        "sharding_of_no_mesh",
        lambda: spmdx.Sharding(3, ("i",)),
        "HERE: Sharding: the mesh is a int. Expected a spmdx.Mesh. Make one with "
        "spmdx.Mesh(device_ids, mesh_shape, axis_names).",
    ),
    (
        "boxes_of_a_number",
        lambda: marked(("i", None)).sharding.boxes(3),
        "HERE: boxes: the shape is 3. Expected integers. Write (8, 4).",
    ),
    (
        "boxes_of_another_rank",
        lambda: marked(("i", None)).sharding.boxes((3,)),
        f"HERE: boxes: {ROWS} is of a tensor of rank 2, the shape is (3,). Expected 2 sizes of at "
        "least 0. Pass the shape of the tensor that it is of.",
    ),
    (
        "drawn_of_another_rank",
        lambda: spmdx.visualize_sharding(((3,), marked(("i", None)).sharding)),
        f"HERE: visualize_sharding: {ROWS} is of a tensor of rank 2, the shape is (3,). Expected 2 "
        "sizes of at least 0. Pass the shape of the tensor that it is of.",
    ),
    (
        "drawn_of_a_negative_size",
        lambda: spmdx.visualize_sharding(((-3, 4), marked(("i", None)).sharding)),
        f"HERE: visualize_sharding: {ROWS} is of a tensor of rank 2, the shape is (-3, 4). "
        "Expected 2 sizes of at least 0. Pass the shape of the tensor that it is of.",
    ),
    (
        "drawn_number",
        lambda: spmdx.visualize_sharding(3),
        "HERE: visualize_sharding: the first argument is 3. Expected a tensor, or a pair of a "
        "shape and a sharding. Write ((8, 4), spmdx.get_sharding(tensor)).",
    ),
    (
        "drawn_shape",
        lambda: spmdx.visualize_sharding((8, 4)),
        "HERE: visualize_sharding: the first argument is (8, 4). Expected a tensor, or a pair of a "
        "shape and a sharding. Write ((8, 4), spmdx.get_sharding(tensor)).",
    ),
    (
        "drawn_mesh",
        lambda: spmdx.visualize_sharding(((8, 4), grid())),
        "HERE: visualize_sharding: the first argument is ((8, 4), Mesh(i=4, j=2)). Expected a "
        "tensor, or a pair of a shape and a sharding. Write ((8, 4), spmdx.get_sharding(tensor)).",
    ),
    (
        "drawn_nowhere",
        lambda: spmdx.visualize_sharding(marked(("i", None)), file=3),
        "HERE: visualize_sharding: the file is 3. Expected one that is open for text, or None for "
        "the terminal. Pass sys.stderr, or what open(path, 'w') returned.",
    ),
    (
        "nothing_to_draw",
        lambda: spmdx.visualize_sharding(device(4)),
        "HERE: visualize_sharding: the tensor has no sharding. Expected one that is annotated or "
        "computed from annotated ones. Call spmdx.mark_sharding first.",
    ),
    (
        "explain_cpu",
        lambda: spmdx.explain(torch.zeros(2)),
        "HERE: explain: tensor is on device 'cpu'. Expected a tensor on device 'spmdx'. Move it "
        'there first: tensor = tensor.to("spmdx").',
    ),
    (
        "explain_a_number",
        lambda: spmdx.explain(3),
        "HERE: explain: the first argument is a int. Expected a torch.Tensor on device 'spmdx'. "
        "Pass a tensor, for a module one of its parameters.",
    ),
    (
        "shards_of_cpu",
        lambda: on_cpu().local_shards,
        "spmdx: the tensor is on cpu. Expected a tensor on device 'spmdx'. Move it there first "
        'with .to("spmdx").',
    ),
]


@pytest.mark.parametrize("call, message", cases(QUESTIONS))
def test_what_cannot_be_answered_is_refused(call, message):
    assert message_of(spmdx.ShardingError, call) == message


TRANSFORMS = {
    "vmap": lambda f: torch.vmap(f)(device(2, 4)),
    "grad": lambda f: torch.func.grad(f)(device(4)),
    "jvp": lambda f: torch.func.jvp(f, (device(4),), (device(4),)),
    "functionalize": lambda f: torch.func.functionalize(f)(device(4)),
}
CALLS = {
    "mark_sharding": lambda t: spmdx.mark_sharding(t, grid(), ("i",)),
    "mark_sharding_with_gradients": lambda t: spmdx.mark_sharding_with_gradients(t, grid(), ("i",)),
    "clear_sharding": spmdx.clear_sharding,
    "shard_as": lambda t: spmdx.shard_as(t, t),
    "explain": spmdx.explain,
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_what_a_transform_works_on_is_refused(transform, name):
    def inside(t):
        CALLS[name](t)
        return t.sum()

    def call():
        return TRANSFORMS[transform](inside)

    assert message_of(spmdx.ShardingError, call) == (
        f"HERE: {name}: t is inside torch.vmap or another transform of torch.func. Expected "
        "a tensor outside of it, where it is whole. Make the call outside, with what goes into "
        "the transform or comes out of it."
    )


def test_around_a_transform_marks_are_kept():
    x = marked(("i", None))
    y = spmdx.mark_sharding(torch.vmap(torch.sin)(x), grid(), ("i", "j"))
    assert spmdx.get_sharding(y).spec == ("i", "j")
    assert torch.vmap(lambda t: t + (spmdx.get_sharding(t) is None))(x).sum().item() == 64
