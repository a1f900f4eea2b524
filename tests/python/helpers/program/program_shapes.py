# SPDX-License-Identifier: Apache-2.0
"""Ops of random programs that move, cut, join, look up and write."""


def movement(g):
    x = g.float()
    shape, rank = tuple(g[x].shape), g[x].dim()
    if rank == 0:
        return f"{x}.expand(3)"
    d = g.dim(x)
    size = shape[d]
    part = next((p for p in g.shuffled((2, 3, 4, 5)) if size % p == 0 and size > p), 1)
    forms = [
        f"{x}.permute({g.shuffled(range(rank))})",
        f"{x}.transpose({d}, -1)",
        f"{x}.reshape(-1)",
        f"{x}.unflatten({d}, ({part}, {size // part}))",
        f"{x}.unflatten({d}, ({size // part}, {part}))",
        f"{x}.unsqueeze({d})",
        f"{x}.squeeze()",
        f"{x}.unsqueeze({d}).expand{(*shape[:d], 2, *shape[d:])}",
        f"{x}.flip({d})",
        f"{x}.roll({g.below(4)}, {d})",
        f"{x}.repeat{(1,) * d + (2,) + (1,) * (rank - d - 1)}",
        f"{x}.repeat_interleave(2, {d})",
        f"{x}.contiguous() * 1.0",
        f"{x}.movedim({d}, 0)",
    ]
    if rank >= 2:
        m = min(d, rank - 2)
        forms += [f"{x}.flatten({m}, {m + 1})"] * 3
        forms += [f"{x}.transpose({m}, {m + 1}).reshape({shape[m]}, -1)"] * 2
        forms += [f"{x}.mT.reshape(-1, {shape[0]})", f"{x}.tril({g.below(3) - 1})", f"{x}.triu()"]
        forms += [f"{x}.diagonal(0, -2, -1)"]
    return g.choice(forms)


def cut(g):
    x = g.float(lambda t: t.dim() >= 1)
    if x is None:
        return None
    d = g.dim(x)
    size = g[x].shape[d]
    start = g.below(size)
    end, step = start + 1 + g.below(size - start), g.choice((1, 1, 2))
    every = ", ".join([":"] * d + [f"{start}:{end}:{step}"])
    forms = [
        f"{x}[{every}]",
        f"{x}.select({d}, {start})",
        f"{x}.chunk(2, {d})",
        f"{x}.chunk(2, {d})",
        f"{x}.split({max(1, size - 1)}, {d})",
        f"{x}.narrow({d}, {start}, {end - start})",
    ]
    if size <= 4:
        forms.append(f"{x}.unbind({d})")
    return g.choice(forms)


def indexing(g):
    """Indices are values of the program, so that they may be cut too."""
    x = g.float(lambda t: t.dim() >= 1)
    i = g.index(lambda t: t.dim() >= 1)
    if x is None or i is None:
        return None
    d, rank = g.dim(x), g[x].dim()
    size = g[x].shape[d]
    forms = [f"{x}[{i} % {g[x].shape[0]}]"]
    if g[i].dim() == 1:
        forms += [f"{x}.index_select({d}, {i} % {size})"] * 2
        shape = (*g[x].shape[:d], g[i].shape[0], *g[x].shape[d + 1 :])
        src = g.float(lambda t: t.shape == shape)
        if src:
            forms += [f"torch.index_add({x}, {d}, {i} % {size}, {src})"] * 2
        if d == 0 and src:
            forms += [f"torch.index_put({x}, ({i} % {size},), {src}, accumulate=True)"]
    if g[i].dim() == rank and all(
        a <= b for k, (a, b) in enumerate(zip(g[i].shape, g[x].shape, strict=True)) if k != d
    ):
        forms += [f"{x}.gather({d}, {i} % {size})"] * 2
        src = g.float(lambda t: t.shape == g[i].shape)
        if src:
            forms += [f"{x}.scatter_add({d}, {i} % {size}, {src})"] * 2
    if rank == 2:
        forms += [f"F.embedding({i} % {g[x].shape[0]}, {x})"] * 3
    return g.choice(forms)


def join(g):
    x = g.float(lambda t: t.dim() >= 1)
    if x is None:
        return None
    d, shape = g.dim(x), g[x].shape
    y = g.float(
        lambda t: (
            t.dim() == len(shape)
            and all(a == b for k, (a, b) in enumerate(zip(shape, t.shape, strict=True)) if k != d)
        )
    )
    same = g.float(lambda t: t.shape == shape)
    padding = [0, 0] * (len(shape) - 1 - d) + [1, 2]
    return g.choice(
        (
            f"torch.cat([{x}, {y}], {d})",
            f"torch.cat([{x}, {y}], {d})",
            f"torch.stack([{x}, {same}], {d})",
            f"F.pad({x}, {padding})",
            f"F.pad({x}, {padding}, value=0.5)",
            f"torch.cat([{x}, {x} * 2.0, {x}], {d})",
        )
    )


def mutation(g):
    x = g.float(lambda t: t.dim() >= 1)
    if x is None:
        return None
    d = g.dim(x)
    size = g[x].shape[d]
    y = g.float(lambda t: t.shape == g[x].shape)
    return [
        f"$ = {x}.clone()" if g.below(3) else f"$ = {x} * 1.0",
        g.choice(
            (
                "$.mul_(1.5)",
                f"$.add_({y})",
                f"$.narrow({d}, {g.below(size)}, 1).mul_(2.0)",
                f"$.narrow({d}, {g.below(size)}, 1).zero_()",
                "$.transpose(0, -1).add_(0.5)",
                f"$.select({d}, 0).copy_($.select({d}, -1) * 3.0)",
                f"$[{', '.join([':'] * d + [f'{g.below(size)}:'])}] = 0.25",
                f"$.view(-1)[{g.below(g[x].numel())}:].mul_(0.5)",
                "$.masked_fill_($ > 0.5, 0.1)",
            )
        ),
    ]


def strided(g):
    """Views whose elements lie apart, backwards or on top of each other."""
    x = g.float(lambda t: t.dim() >= 1)
    if x is None:
        return None
    d, rank, count = g.dim(x), g[x].dim(), g[x].numel()
    size = g[x].shape[d]
    window = 1 + g.below(size)
    step = 1 + g.below(3)
    far, wide = 1 + g.below(3), 1 + g.below(min(4, count))
    rows = (count - wide) // far + 1
    first = g.below(count - (rows - 1) * far - wide + 1)
    forms = [
        f"{x}.unfold({d}, {window}, {step})",
        f"({x} * 1.0).reshape(-1).as_strided(({rows}, {wide}), ({far}, 1), {first})",
        f"{x}.flip({sorted(g.shuffled(range(rank))[: 1 + g.below(rank)])})",
        f"{x}.expand(2, {', '.join(['-1'] * rank)}).transpose(0, -1)",
        [f"$ = {x}.clone()", f"$.unfold({d}, {window}, {window}).mul_(1.5)"],
    ]
    if rank >= 2:
        one, two = g.shuffled(range(rank))[:2]
        diagonal = f"diagonal({g.below(3) - 1}, {one}, {two})"
        forms += [f"{x}.{diagonal}", [f"$ = {x} * 1.0", f"$.{diagonal}.add_(0.5)"]]
    if rank == 4:
        forms = [f"{x}.contiguous(memory_format=torch.channels_last) * 1.0"] + forms[:2]
    return g.choice(forms)


def written_flat(g):
    """What an op makes is written through a reshape, which copies or not as its strides say."""
    x = g.float(lambda t: t.dim() >= 2)
    if x is None:
        return None
    rank = g[x].dim()
    d = g.below(rank - 1)
    order = g.shuffled(range(rank))
    x = f"{x}.permute({order})" if g.below(3) else x
    last = "torch.channels_last" if rank == 4 else "torch.contiguous_format"
    made = [f"{x} * 1.5", f"{x} + {x}.select(0, 0)", f"{x}.sin()", f"{x}.clone()"]
    made += [f"{x}.abs()", f"F.pad({x}, (1, 0))", f"torch.cat([{x}, {x}])", f"{x}.cumsum(0)"]
    made += [f"F.dropout({x}, 0.0)", f"torch.where({x} > 0, {x}, 0.5)", f"{x}.sort(0).values"]
    if rank == 4:
        x = f"{x}.contiguous(memory_format={last})"
        made += [f"{x} * 1.0", f"F.pad({x}, (1, 1))", f"F.interpolate({x}, scale_factor=2)"]
        made += [f"F.avg_pool2d({x}, 1)", f"F.max_pool2d({x}, 1)", f"{x}.roll(1, 2)"]
        made += [f"F.conv2d({x}, {x}[:2, :, :1, :1]) * 0.3"]
    how = (f"$.flatten({d})", "$.reshape(-1)", f"$.transpose({d}, -1).reshape(-1)")
    return [f"$ = {g.choice(made)}", f"{g.choice(how)}.mul_(0.5)"]
