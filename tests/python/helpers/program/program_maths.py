# SPDX-License-Identifier: Apache-2.0
"""Ops of random programs that compute: products, reductions, norms, losses, attention."""

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
