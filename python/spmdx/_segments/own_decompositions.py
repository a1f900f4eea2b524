# SPDX-License-Identifier: Apache-2.0
"""Decompositions that PyTorch does not have, or not with all results, or not as exact."""

import math
from typing import Any

import torch

aten = torch.ops.aten
OWN: dict[Any, Any] = {}


def _attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: torch.Tensor | None = None,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Attention and the logarithm of what its rows were divided by; a row that sees nothing is 0.

    Source: T. Dao et al., FlashAttention, NeurIPS 2022.
    """
    scores = _scores(query, key, is_causal, attn_mask, scale)
    top = scores.amax(-1, keepdim=True)
    is_none = top == -math.inf
    weights = torch.exp(scores - torch.where(is_none, 0.0, top))
    total = weights.sum(-1, keepdim=True)
    whole = torch.matmul(weights, _wide(value)) / torch.where(is_none, 1.0, total)
    logsumexp = torch.where(is_none, 0.0, top + torch.log(total))
    return whole.to(query.dtype), logsumexp.squeeze(-1)


def _attention_backward(
    grad_out: torch.Tensor,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    out: torch.Tensor,
    logsumexp: torch.Tensor,
    dropout_p: float,
    is_causal: bool,
    *,
    attn_mask: torch.Tensor | None = None,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Gradients of query, key and value."""
    by = _factor(query, scale)
    grad, rows = _wide(grad_out), logsumexp.unsqueeze(-1)
    scores = _scores(query, key, is_causal, attn_mask, scale)
    weights = torch.exp(scores - rows)  # 0 in a row that sees nothing, of which the logarithm is 0
    of_value = torch.matmul(weights.transpose(-2, -1), grad)
    of_weights = torch.matmul(grad, _wide(value).transpose(-2, -1))
    mean = (grad * _wide(out)).sum(-1, keepdim=True)
    of_scores = weights * (of_weights - mean) * by
    of_query = torch.matmul(of_scores, _wide(key))
    of_key = torch.matmul(of_scores.transpose(-2, -1), _wide(query))
    return of_query.to(query.dtype), of_key.to(key.dtype), of_value.to(value.dtype)


def _gelu(x: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    """By the complement of the error function, which is as exact far below 0 as near it."""
    wide = _wide(x)
    if approximate == "none":
        return (wide * 0.5 * torch.erfc(wide * -math.sqrt(0.5))).to(x.dtype)
    inner = math.sqrt(2 / math.pi) * (wide + 0.044715 * wide * wide * wide)
    return (0.5 * wide * (1 + torch.tanh(inner))).to(x.dtype)


def _gelu_backward(
    grad: torch.Tensor, x: torch.Tensor, *, approximate: str = "none"
) -> torch.Tensor:
    """The same."""
    wide = _wide(x)
    if approximate == "none":
        below = 0.5 * torch.erfc(wide * -math.sqrt(0.5))
        density = torch.exp(-0.5 * wide * wide) * (1 / math.sqrt(2 * math.pi))
        return (_wide(grad) * (below + wide * density)).to(x.dtype)
    factor = math.sqrt(2 / math.pi)
    upper = torch.tanh(factor * (wide + 0.044715 * wide * wide * wide))
    slope = factor * (1 + 3 * 0.044715 * wide * wide) * (1 - upper * upper)
    return (_wide(grad) * (0.5 * (1 + upper) + 0.5 * wide * slope)).to(x.dtype)


def _hardswish_backward(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """NaN where x is none, and no digits lost where the slope is 0 between -3 and 3."""
    wide = _wide(x)
    slope = _wide(grad) * ((wide + 1.5) / 3)
    inner = torch.where(wide >= 3, _wide(grad), slope)
    return torch.where(wide <= -3, 0.0, inner).to(x.dtype)


def _scores(
    query: torch.Tensor,
    key: torch.Tensor,
    is_causal: bool,
    mask: torch.Tensor | None,
    scale: float | None,
) -> torch.Tensor:
    scores = torch.matmul(_wide(query), _wide(key).transpose(-2, -1)) * _factor(query, scale)
    if is_causal:
        rows = torch.arange(query.shape[-2]).unsqueeze(-1)
        scores = torch.where(rows >= torch.arange(key.shape[-2]), scores, -math.inf)
    return scores if mask is None else scores + _wide(mask)


def _factor(query: torch.Tensor, scale: float | None) -> float:
    return 1 / math.sqrt(query.shape[-1]) if scale is None else scale


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    """In f32 at least."""
    return tensor.float() if tensor.element_size() < 4 else tensor


OWN[aten._scaled_dot_product_flash_attention_for_cpu.default] = _attention
OWN[aten._scaled_dot_product_flash_attention_for_cpu_backward.default] = _attention_backward
OWN[aten.add.Scalar] = lambda x, other, alpha=1: aten.add.Tensor(x, other * alpha)
OWN[aten.sub.Scalar] = lambda x, other, alpha=1: aten.sub.Tensor(x, other * alpha)
OWN[aten.gelu.default] = _gelu
OWN[aten.gelu_backward.default] = _gelu_backward
OWN[aten.hardswish_backward.default] = _hardswish_backward
