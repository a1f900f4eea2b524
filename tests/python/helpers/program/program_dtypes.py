# SPDX-License-Identifier: Apache-2.0
"""Ops of random programs on whole numbers, masks, constants and other dtypes."""


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
