# SPDX-License-Identifier: Apache-2.0
"""Random operands in every layout, and how results of ops on them lie: on the CPU, on the device.

python tests/python/helpers/layouts.py 100000 [FIRST]
"""

import random
import sys
import warnings

import spmdx  # noqa: F401 - the device
import torch
import torch.nn.functional as F

CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}
# Expressions of x, of y, which broadcasts to it, of z, of its shape, and of a dim d.
ANY_RANK = """
x.relu() x.exp() -x x.abs() x**2.5 2**x 1-x x.clamp(.2,.8) x.to(torch.float64) x.clone()
x.contiguous() torch.ones_like(x) x.nan_to_num() x+y y*x x/(y+1) torch.fmod(x,y+1) x>y
torch.atan2(x,y) torch.maximum(y,x) torch.where(x>.5,x,y) torch.lerp(x,z,.3) torch.addcmul(x,z,z)
torch.isclose(x,z) x.sum(d) x.sum(d,keepdim=True) x.mean(d) x.amax(d) x.max(d) x.argmax(d) x.var(d)
x.norm(dim=d) x.softmax(d) x.log_softmax(d) x.cumsum(d) x.cummax(d) x.cumprod(d) x.logcumsumexp(d)
x.sort(d) x.topk(1,d) x.kthvalue(1,d) x.median(d) x.mode(d) torch.cat([x,z],d)
torch.stack([x,z],d) x.flip(d) x.roll(1,d) x.repeat([2]*x.dim()) x.repeat_interleave(2,d)
x.unfold(d,1,1)*1 x.diff(dim=d) x.index_select(d,zero(x)) x[zero(x)] x[...,zero(x)]
x.gather(d,zeros(x)) x.scatter(d,zeros(x),z) x.masked_fill(x>.5,0) F.pad(x,(1,1)) F.dropout(x,0.)
F.silu(x) F.mish(x) F.hardtanh(x) F.hardsigmoid(x) F.hardshrink(x) F.softshrink(x) F.selu(x)
x.tanh() x.sigmoid() F.softsign(x) F.tanhshrink(x) F.threshold(x,.5,0) x.sinc() x.rsqrt() x.log()
F.gelu(x) F.elu(x) F.hardswish(x) F.softplus(x) F.logsigmoid(x) F.leaky_relu(x) F.celu(x)
F.mse_loss(x,z,reduction='none') F.smooth_l1_loss(x,z,reduction='none')
F.binary_cross_entropy_with_logits(x,z,reduction='none') F.layer_norm(x,x.shape[-1:])
F.rms_norm(x,x.shape[-1:]) torch.complex(x,z) torch.polar(x,z).angle() torch.polar(x,z).abs()
torch.fft.rfft(x) torch._foreach_add([x,z],1) F.linear(x,x.new_ones(3,x.size(-1)))
""".split()
MATRICES = "x.tril() x@x.mT x.mT@x x.rot90() torch.cdist(x,x)".split()
STACKS = """
torch.einsum('abk,cbk->acb',x,x) torch.bmm(x,x.mT) torch.baddbmm(x.new_ones(1,1,1),x,x.mT)
""".split()
# PyTorch makes what group_norm differentiates contiguous on devices other than its own, and lays
# gradients of batch_norm in training by the formats of two tensors: those are not asked.
IMAGES = """
F.conv2d(x,x.new_ones(2,x.size(1),1,1)) F.conv_transpose2d(x,x.new_ones(x.size(1),2,1,1))
F.conv2d(x,x.new_ones(x.size(1),1,1,1),groups=x.size(1)) F.avg_pool2d(x,1) F.lp_pool2d(x,2,1)
F.max_pool2d(x,1,return_indices=True) F.adaptive_avg_pool2d(x,1) F.adaptive_avg_pool2d(x,2)
F.adaptive_max_pool2d(x,1) F.interpolate(x,scale_factor=2) F.unfold(x,1) F.instance_norm(x)
F.interpolate(x,scale_factor=2,mode='bilinear') F.interpolate(x,scale_factor=2,mode='bicubic')
F.interpolate(x,scale_factor=2,mode='bilinear',antialias=True) F.local_response_norm(x,2)
F.batch_norm(x.detach(),None,None,training=True) F.batch_norm(x,x[0,:,0,0]*0,x[0,:,0,0]*0+1)
F.group_norm(x.detach(),1) F.pad(x,(0,0,0,0),mode='reflect') F.pad(x,(1,1,1,1),mode='replicate')
F.pad(x,(1,1,1,1),mode='circular') F.channel_shuffle(x,x.size(1)) F.dropout2d(x,0.,training=True)
F.pixel_shuffle(x.repeat(1,4,1,1),2) F.fold(F.unfold(x,1),x.shape[2:],1) x.flatten(1)*1
F.grid_sample(x,x.new_zeros(x.size(0),2,2,2))
""".split()
CODE = {text: compile(text, text, "eval") for text in (*ANY_RANK, *MATRICES, *STACKS, *IMAGES)}


def zero(x):
    return torch.zeros(2, dtype=torch.int64, device=x.device)


def zeros(x):
    return torch.zeros_like(x, dtype=torch.int64)


def operand(rng, shape):
    """Numbers of a shape, laid out in any order, channels last, with gaps, or expanded."""
    rank = len(shape)
    order = rng.sample(range(rank), rank)
    x = torch.rand([shape[d] for d in order]).permute([order.index(d) for d in range(rank)])
    how, d = rng.random(), rng.randrange(rank)
    if how < 0.3:
        return x.contiguous()
    if how < 0.5:
        return x.contiguous(memory_format=CHANNELS_LAST.get(rank, torch.contiguous_format))
    if how < 0.6:
        return torch.cat([x, x], d).narrow(d, shape[d], shape[d])
    return x.narrow(d, 0, 1).expand(shape) if how < 0.67 else x


def drawn(rng):
    """An expression and the names of its operands, with the dim that it may use."""
    kind = rng.random()
    rank = 4 if kind < 0.3 else 3 if kind < 0.35 else rng.randint(2 if kind < 0.4 else 1, 5)
    menu = IMAGES if kind < 0.3 else STACKS if kind < 0.35 else MATRICES if kind < 0.4 else ANY_RANK
    shape = [rng.choice([1, 1, 2, 3, 4, 5]) for _ in range(rank)]
    broadcast = [1 if rng.random() < 0.3 else n for n in shape][rng.randint(0, rank - 1) :]
    names = {"x": operand(rng, shape), "y": operand(rng, broadcast), "z": operand(rng, shape)}
    return rng.choice(menu), names, rng.randrange(rank)


def moved(tensor):
    """On both sides, as uploads lay it out: without gaps."""
    there = tensor.to("spmdx")
    here = torch.empty_strided(there.shape, there.stride()).copy_(tensor)
    return here.requires_grad_(), there.requires_grad_()


def layouts(text, names, d):
    """Shapes and walked strides of the results, and of the gradients of the first one."""
    made = eval(CODE[text], {"torch": torch, "F": F, "zero": zero, "zeros": zeros, "d": d, **names})
    made = list(made) if isinstance(made, (tuple, list)) else [made]
    leaves = [names[n] for n in "xyz"]
    if made[0].requires_grad and made[0].is_floating_point():
        try:
            upstream = torch.ones_like(made[0], memory_format=torch.contiguous_format)
            made += torch.autograd.grad(made[0], leaves, upstream, allow_unused=True)
        except RuntimeError:  # no derivative, on either side
            made.append(None)
    return [t if t is None else (t.shape, walked(t)) for t in made]


def walked(t):
    """The strides that lead anywhere."""
    return [s for s, n in zip(t.stride(), t.shape, strict=True) if n > 1] if t.numel() else []


def difference(seed):
    """How layouts of a seed's expression differ, in words; None where they do not."""
    rng = random.Random(seed)
    text, names, d = drawn(rng)
    pairs = {name: moved(tensor) for name, tensor in names.items()}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            want = layouts(text, {name: pair[0] for name, pair in pairs.items()}, d)
        except (RuntimeError, IndexError, ValueError):  # not of these sizes
            return None
        got = layouts(text, {name: pair[1] for name, pair in pairs.items()}, d)
    if got == want:
        return None
    given = {name: (tuple(t.shape), t.stride()) for name, (t, _) in pairs.items()}
    return f"{text} of {given}, d={d}: {got}, not {want}"


if __name__ == "__main__":
    count, first = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    differ = [said for said in map(difference, range(first, first + count)) if said]
    print(*differ, f"{len(differ)} of {count} differ", sep="\n")
    sys.exit(bool(differ))
