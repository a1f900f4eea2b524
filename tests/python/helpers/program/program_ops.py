# SPDX-License-Identifier: Apache-2.0
"""The ops of random programs as Python text: each looks at the values and writes one more line.

An op takes a Draft (programs.py) and returns an expression, a list of statements in which ``$`` is
the new name, or None where nothing fits. What it writes depends on shapes and on chance only.
"""

FLOAT_UNARY = (
    "{}.tanh()",
    "{}.sigmoid()",
    "{}.relu()",
    "-{}",
    "{}.abs()",
    "{}.sin()",
    "F.gelu({})",
    "F.silu({})",
    "F.leaky_relu({}, 0.1)",
    "F.softplus({})",
    "{}.clamp(-0.5, 0.5)",
    "{}.tanh().exp()",
    "{}.square()",
    "{} * 1.5 + 0.25",
    "0.5 - {}",
    "1.0 / ({0} * {0} + 1.0)",
    "({0} * {0} + 0.5).sqrt()",
    "({0} * {0} + 0.5).log()",
    "{}.to(torch.float32).to(torch.float64).round(decimals=3)",
    "{}.detach() * 0.5",
)
FLOAT_BINARY = (
    "{} + {}",
    "{} - {}",
    "{} * {}",
    "torch.maximum({}, {})",
    "torch.minimum({}, {})",
    "{0} / ({1} * {1} + 1.0)",
    "torch.where({0} > {1}, {0}, {1} * 2.0)",
    "torch.lerp({}, {}, 0.3)",
    "torch.add({}, {}, alpha=0.5)",
    "torch.addcmul({0}, {1}, {1}, value=0.5)",
    "F.mse_loss({0}, {1}.expand_as({0}), reduction='none')",
)


def unary(g):
    return g.choice(FLOAT_UNARY).format(g.float())


def binary(g):
    x, y = g.float(), g.float()
    if not g.broadcast(x, y):
        y = f"{x}.flip(0)" if g[x].dim() else f"{x} * 0.5"
        return g.choice(FLOAT_BINARY[:7]).format(x, f"({y})")
    if g[y].dim() > g[x].dim() or g[x].shape != (g[x] + g[y]).shape:
        return g.choice(FLOAT_BINARY[:5]).format(x, y)
    return g.choice(FLOAT_BINARY).format(x, y)


def matmul(g):
    x = g.float(lambda t: t.dim() >= 1)
    if x is None:
        return None
    if g[x].dim() == 1:
        same = g.float(lambda t: t.shape == g[x].shape)
        return g.choice((f"torch.outer({x}, {same}) * 0.5", f"torch.dot({x}, {same}) * 0.5"))
    k, scale = g[x].shape[-1], g.choice(("", " * 0.3"))
    y = g.float(lambda t: t.dim() == 2 and t.shape[0] == k)
    z = g.float(lambda t: t.dim() == 2 and t.shape[1] == k)
    v = g.float(lambda t: t.shape == (k,))
    stacked = g.float(lambda t: t.dim() == 3 and t.shape[1] == k)
    forms = [f"({x} @ {x}.mT){scale}", f"({x}.mT @ {x}){scale}"]
    forms += [f"({x} @ {y}){scale}"] * 3 if y else []
    forms += [f"F.linear({x}, {z}){scale}"] * 3 if z else []
    forms += [f"({x} @ {v}){scale}"] if v else []
    if z:
        bias = g.float(lambda t: t.shape == g[z].shape[:1])
        forms += [f"F.linear({x}, {z}, {bias}){scale}"] * 2 if bias else []
    if y and g[x].dim() == 2:
        bias = g.float(lambda t: t.shape in (g[y].shape[1:], (g[x].shape[0], g[y].shape[1])))
        forms += [f"torch.addmm({bias}, {x}, {y}, beta=0.5, alpha=0.3)"] if bias else []
    if stacked and g[x].dim() == 3 and g[stacked].shape[0] == g[x].shape[0]:
        forms += [f"torch.bmm({x}, {stacked}){scale}"] * 2
    return g.choice(forms)


def einsum(g):
    x = g.float(lambda t: t.dim() == 3)
    if x is None:
        return None
    scale = g.choice(("", " * 0.3"))
    y = g.float(lambda t: t.dim() >= 2 and t.shape[-1] == g[x].shape[-1] and t.dim() <= 3)
    if g[y].dim() == 2:
        how = g.choice(("abk,ck->cab", "abk,ck->bc"))
        return f"torch.einsum('{how}', {x}, {y}){scale}"
    if g[y].shape[0] != g[x].shape[0]:
        return f"torch.einsum('abk,cdk->acbd', {x}, {y}){scale}"
    return f"torch.einsum('abk,ack->abc', {x}, {y}){scale}"


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


def reduction(g):
    x = g.float(lambda t: t.dim() >= 1)
    if x is None:
        return None
    rank = g[x].dim()
    dims = sorted(g.shuffled(range(rank))[: 1 + g.below(rank)])
    keep = f"keepdim={g.below(2) == 1}"
    forms = [
        f"{x}.{f}({dims}, {keep})" for f in ("sum", "sum", "mean", "amax", "amin", "logsumexp")
    ]
    forms += [f"torch.linalg.vector_norm({x}, 2, {dims}, {keep})", f"{x}.sum()", f"{x}.mean()"]
    forms += [f"{x}.prod({dims[0]}, {keep})", f"{x}.amax()"]
    if all(g[x].shape[d] > 1 for d in dims):
        forms += [f"{x}.var({dims}, {keep})", f"({x}.var({dims}, {keep}) + 0.1).sqrt()"]
    return g.choice(forms)


def along_a_dim(g):
    x = g.float(lambda t: t.dim() >= 1)
    if x is None:
        return None
    d = g.dim(x)
    size = g[x].shape[d]
    forms = [
        f"{x}.softmax({d})",
        f"{x}.softmax({d})",
        f"{x}.log_softmax({d})",
        f"{x}.cumsum({d}) * 0.5",
        f"{x}.tanh().cumprod({d})",
        f"{x}.max({d}).values",
        f"{x}.min({d}).values",
        f"{x}.sort({d}).values",
        f"{x}.sort({d}, descending=True).values",
        f"{x}.topk({max(1, size // 2)}, {d}).values",
        f"{x}.logcumsumexp({d})",
        f"{x}.kthvalue({1 + size // 2}, {d}).values",
        f"F.normalize({x}, dim={d}, eps=0.1)",
    ]
    forms += [f"F.glu({x}, {d})"] if size % 2 == 0 else []
    return g.choice(forms)


def normalisation(g):
    x = g.float(lambda t: t.dim() >= 2)
    if x is None:
        return None
    shape = tuple(g[x].shape)
    w = g.float(lambda t: t.shape == shape[-1:])
    forms = [f"F.layer_norm({x}, {shape[-1:]}, eps=0.1)", f"F.rms_norm({x}, {shape[-1:]}, eps=0.1)"]
    if w:
        b = g.float(lambda t: t.shape == shape[-1:])
        forms += [f"F.layer_norm({x}, {shape[-1:]}, {w}, {b}, eps=0.1)"] * 2
        forms += [f"F.rms_norm({x}, {shape[-1:]}, {w}, eps=0.1)"]
    c = g.float(lambda t: t.shape == shape[1:2])
    if g[x].numel() > shape[1] > 0:
        weight = f", weight={c}" if c else ""
        forms += [f"F.batch_norm({x}, None, None{weight}, training=True, eps=0.1)"]
        groups = next(n for n in (3, 2, 1) if shape[1] % n == 0)
        if g[x].numel() > shape[0] * groups:
            forms += [f"F.group_norm({x}, {groups}{weight}, eps=0.1)"]
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


def loss(g):
    x = g.float(lambda t: t.dim() == 2)
    if x is None:
        return None
    n, classes = g[x].shape
    i = g.index(lambda t: t.shape == (n,))
    w = g.float(lambda t: t.shape == (classes,))
    y = g.float(lambda t: t.shape == (n, classes))
    how = g.choice(("mean", "sum", "none", "mean"))
    forms = [
        f"F.mse_loss({x}, {y}, reduction='{how}')",
        f"F.smooth_l1_loss({x}, {y}, reduction='{how}')",
        f"F.binary_cross_entropy_with_logits({x}, {y}.sigmoid(), reduction='{how}')",
        f"F.kl_div({x}.log_softmax(1), {y}.softmax(1), reduction='sum') * 0.5",
        f"F.cross_entropy({x}, {y}.softmax(1), reduction='{how}')",
    ]
    if i:
        target = f"{i} % {classes}"
        forms += [f"F.cross_entropy({x}, {target}, reduction='{how}')"] * 4
        forms += [f"F.cross_entropy({x}, {target}, reduction='{how}', label_smoothing=0.2)"] * 2
        forms += [f"F.nll_loss({x}.log_softmax(1), {target}, reduction='{how}')"]
        if classes > 1 and n > 1:
            forms += [f"F.cross_entropy({x}, {target}, reduction='sum', ignore_index=1) * 0.5"] * 2
        if w:
            forms += [
                f"F.cross_entropy({x}, {target}, {w}.detach().abs() + 0.1, reduction='{how}')"
            ] * 2
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


def attention(g):
    x = g.float(lambda t: t.dim() == 3 and t.shape[-1] % 2 == 0)
    if x is None:
        return None
    b, s, e = g[x].shape
    y = g.float(lambda t: t.dim() == 3 and t.shape[0] == b and t.shape[2] == e)
    heads = g.choice([h for h in (1, 2, 4) if e % h == 0])
    split = f".unflatten(-1, ({heads}, {e // heads})).transpose(1, 2)"
    causal = ", is_causal=True" if g[y].shape[1] == s and g.below(2) else ""
    return [
        f"$ = F.scaled_dot_product_attention({x}{split}, {y}{split}, {y}{split}{causal})",
        "$ = $.transpose(1, 2).flatten(2)",
    ]


def spatial(g):
    x = g.float(lambda t: t.dim() in (3, 4) and min(t.shape[2:]) >= 2)
    if x is None:
        return None
    n = g[x].dim() - 2
    c = g[x].shape[1]
    w = g.float(lambda t: t.dim() == n + 2 and t.shape[1] == c and max(t.shape[2:]) <= 3)
    forms = [f"F.avg_pool{n}d({x}, 2, 1)", f"F.max_pool{n}d({x}, 2)"]
    forms += [f"F.interpolate({x}, scale_factor=2)"]
    forms += [f"F.conv{n}d({x}, {w}, padding=1) * 0.3"] * 6 if w else []
    return g.choice(forms)


def logic(g):
    """Integers and masks: no gradients, and exact."""
    x = g.float(lambda t: t.dim() >= 1)
    i = g.index()
    d = g.dim(x) if x else 0
    forms = [f"({i} * 3 + 1) % 5", f"({i} > 1).to(torch.int64)", f"{i}.sum()"] if i else []
    if x:
        forms += [
            f"{x}.argmax({d})",
            f"{x}.argmin({d})",
            f"({x} > 0.0).any({d}).to(torch.int64)",
            f"({x} > -1.0).all({d}).to(torch.int64)",
            f"({x} > 0.0).sum({d})",
            f"{x}.topk(1, {d}).indices",
            f"{x}.argsort(stable=True, dim={d})",
        ]
    if x and g[x].dim() <= 2:
        n = g[x].shape[0]
        forms += [f"torch.arange({n}, device={x}.device) * 2", f"F.one_hot({x}.argmax(-1) % 3, 3)"]
    return g.choice(forms) if forms else None


def constants(g):
    x = g.float(lambda t: t.dim() >= 1)
    if x is None:
        return None
    n = g[x].shape[-1]
    like = f"dtype={x}.dtype, device={x}.device"
    return g.choice(
        (
            f"{x} * torch.arange({n}, {like}) * 0.2",
            f"{x} * torch.arange(1, {n + 1}, {like}) * 0.2",
            f"{x} + torch.linspace(-1, 1, {n}, {like})",
            f"{x}.new_zeros({x}.shape) + {x}.mean()",
            f"torch.full_like({x}, 0.5) * {x}",
            f"{x} @ torch.eye({n}, {like})",
            f"{x} * round(float({x}.detach().mean().item()), 6)",
            f"{x}.masked_fill(torch.ones({n}, {n}, {like}).triu(1)[0] > 0, 0.2)",
        )
    )


WHOLE = ("torch.int64", "torch.int32", "torch.uint8")
SMOOTH = ("torch.float64", "torch.float32", "torch.bfloat16", "torch.float16")


def casts(g):
    x = g.float()
    forms = [f"{x}.to({dtype})" for dtype in SMOOTH]
    forms += [f"({x}.detach() * 4.0).to({dtype})" for dtype in WHOLE[:2]]
    forms += [f"({x}.detach().abs() * 4.0).to(torch.uint8)", f"{x}.detach() > 0.3"]
    return g.choice(forms)


def whole_numbers(g):
    """Sums, orders and bits of whole numbers: exact in every dtype."""
    x = g.pick(lambda t: str(t.dtype) in WHOLE)
    if x is None:
        return None
    y = g.pick(lambda t: str(t.dtype) in WHOLE and g.fits(t, g[x]))
    forms = [f"{x} + {y}", f"{x} * 3 - {y}", f"{x} & {y}", f"{x} ^ 5", f"{x} == {y}", f"{x} < {y}"]
    forms += [f"{x} // 3", f"{x} % 5", f"{x}.clamp(1, 5)", f"{x}.bool()", f"{x}.sum()"]
    forms += [f"{x}.to({dtype})" for dtype in WHOLE] + [f"{x}.to(torch.float64) * 0.1"]
    if g[x].dim():
        d = g.dim(x)
        forms += [f"{x}.{f}({d})" for f in ("sum", "amax", "amin", "cumsum", "flip", "argmax")]
        forms += [f"{x}.sort({d}).values", f"{x}.max({d}).values", f"({x} % 3).prod({d}) % 100"]
        forms += [f"torch.cat([{x}, {x} + 1], {d})", f"{x}.roll(1, {d})"]
    return g.choice(forms)


def masks(g):
    m = g.pick(lambda t: str(t.dtype) == "torch.bool")
    if m is None:
        return None
    other = g.pick(lambda t: str(t.dtype) == "torch.bool" and g.fits(t, g[m]))
    x = g.float(lambda t: g.fits(t, g[m]))
    forms = [f"~{m}", f"{m} & {other}", f"{m} | {other}", f"{m} ^ {other}", f"{m}.sum()"]
    forms += [f"{m}.to({dtype})" for dtype in (*WHOLE, SMOOTH[0], SMOOTH[2])]
    forms += [f"{x}.masked_fill({m}, 0.5)", f"torch.where({m}, {x}, {x} * 0.5)"] if x else []
    if g[m].dim():
        d = g.dim(m)
        forms += [f"{m}.{f}({d})" for f in ("sum", "any", "all", "amax", "cumsum", "flip")]
    return g.choice(forms)


def complex_numbers(g):
    x = g.float()
    if g[x].is_complex():
        forms = [f"{x}.conj()", f"{x}.real", f"{x}.imag", f"torch.view_as_real({x})"]
        forms += [f"{x}.conj() * {x}", f"({x}.real ** 2 + {x}.imag ** 2 + 0.1).sqrt()"]
        forms += [[f"$ = {x}.conj().resolve_conj()", "$.mul_(0.5)"]] * 3
        forms += [[f"$ = ({x} * 1.0).conj()", "$.imag.mul_(0.5)"], f"{x}.conj().imag.resolve_neg()"]
        return g.choice(forms)
    y = g.float(lambda t: t.shape == g[x].shape and t.dtype == g[x].dtype)
    pairs = g.float(lambda t: t.dim() >= 1 and t.shape[-1] == 2 and not t.is_complex())
    forms = [f"torch.complex({x}, {y})", f"torch.fft.rfft({x}, norm='ortho')"]
    forms += [f"torch.view_as_complex({pairs}.contiguous())"] if pairs else []
    return g.choice(forms)


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


OPS = {
    unary: 3,
    binary: 4,
    matmul: 5,
    einsum: 1,
    movement: 5,
    reduction: 3,
    along_a_dim: 2,
    normalisation: 2,
    cut: 2,
    indexing: 3,
    loss: 3,
    join: 2,
    mutation: 2,
    attention: 1,
    spatial: 1,
    logic: 1,
    constants: 1,
    casts: 0.5,
    whole_numbers: 1.3,
    masks: 1.3,
    complex_numbers: 1,
    strided: 1.5,
    written_flat: 1,
}
OF_MORE_DTYPES = (casts, masks, complex_numbers)
