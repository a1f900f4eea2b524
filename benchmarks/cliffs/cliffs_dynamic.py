# SPDX-License-Identifier: Apache-2.0
"""Shapes, parts and ends of loops that follow from what was computed or drawn, and many views."""

import random

import torch
import torch.nn.functional as F
from cliff_row import Goal, Rows, with_sgd
from torch import nn

ROWS = Rows()
READ = Goal(factor=3.0)


@ROWS.add("decoding by cat, 300 tokens read", "attention of 32, one sequence", goal=READ)
def decoding(at):
    w, table = at.whole(32, 96), at.whole(50, 32)

    @torch.no_grad()
    def step():
        keys = values = None
        token = torch.zeros(1, dtype=torch.long, device=at.device)
        for _ in range(300):
            q, k, v = (table[token] @ w * 0.1).chunk(3, -1)
            keys = k if keys is None else torch.cat([keys, k])
            values = v if values is None else torch.cat([values, v])
            token = (torch.softmax(q @ keys.T, -1) @ values @ table.T).argmax(-1)
            token.item()
        return keys

    return step


@ROWS.add("beam search, lists read", "4 beams of 8 tokens, GRUCell of 64, 200 tokens", goal=READ)
def beams(at):
    table, head, cell = at.whole(200, 32), at.whole(64, 200), at.model(nn.GRUCell(32, 64))

    def longer(tokens, score, state):
        state = cell(table[torch.tensor(tokens[-1:], device=at.device)], state)
        best = F.log_softmax(state @ head, -1)[0].topk(4)
        ends = zip(*(each.tolist() for each in best), strict=True)
        return [([*tokens, token], score + s, state) for s, token in ends]

    @torch.no_grad()
    def step():
        kept = [([0], 0.0, torch.zeros(1, 64, device=at.device))]
        for _ in range(8):
            grown = [each for beam in kept for each in longer(*beam)]
            kept = sorted(grown, key=lambda beam: -beam[1])[:4]
        return torch.tensor([score for _, score, _ in kept])

    return step


@ROWS.add("means of x[x > t], t changes", "8 of f32[4096]", goal=READ)
def selected(at):
    x, i = at.rows(4096), [0]

    def step():
        i[0] += 1
        return torch.stack([x[x > 0.1 * k + 1e-3 * i[0]].mean() for k in range(8)])

    return step


@ROWS.add("y[m] = y[m] * 0.9, m changes", "8 masks of f32[256, 64]", goal=READ)
def assigned(at):
    x, i = at.rows(256, 64), [0]

    def step():
        i[0] += 1
        y = x.clone()
        for k in range(8):
            mask = y > 0.05 * k + 1e-3 * i[0]
            y[mask] = y[mask] * 0.9
        return y

    return step


@ROWS.add("boxes matched to anchors, training", "4 of 400 anchors, 1 to 10 boxes", goal=READ)
def matched(at):
    model, features, anchors = at.model(nn.Linear(32, 5)), at.rows(4, 400, 32), at.whole(400, 4)
    counts, drawn = random.Random(0), torch.Generator().manual_seed(1)

    def loss_of(m):
        loss = 0.0
        for image in range(4):
            boxes = at.put(torch.randn(counts.randint(1, 10), 4, generator=drawn))
            far, nearest = torch.cdist(anchors, boxes).min(1)
            near, found = far < 1.5, m(features[image])
            off = F.smooth_l1_loss(found[near][:, :4], boxes[nearest[near]], reduction="sum")
            sure = F.binary_cross_entropy_with_logits(found[:, 4], near.float())
            loss = loss + off / (near.sum() + 1) + sure
        return loss

    return with_sgd(model, loss_of)


@ROWS.add("mixup by roll(k), k is drawn, training", "4 linear layers of 32, batch 32")
def mixup(at):
    layers = [layer for _ in range(4) for layer in (nn.Linear(32, 32), nn.Tanh())]
    model, x, drawn = at.model(nn.Sequential(*layers)), at.rows(32, 32), random.Random(0)

    def loss_of(m):
        share, k = drawn.betavariate(0.4, 0.4), drawn.randint(1, 31)
        return m(share * x + (1 - share) * x.roll(k, 0)).square().mean()

    return with_sgd(model, loss_of)


@ROWS.add("k-means by masks, each read", "1,000 points of 8, 8 means, 5 times", goal=READ)
def k_means(at):
    x = at.rows(1000, 8)

    def step():
        means = x[:8].clone()
        for _ in range(5):
            nearest = torch.cdist(x, means).argmin(1)
            for k in range(8):
                mask = nearest == k
                if mask.any():
                    means[k] = x[mask].mean(0)
        return means

    return step


@ROWS.add("value iteration until it is stable", "50 states, 4 acts, 71 times", goal=READ)
def value_iteration(at):
    gain, target = at.rows(50, 4), at.ints(50, 50, 4)

    def step():
        value = torch.zeros(50, device=at.device)
        for _ in range(100):
            last, value = value, (gain + 0.9 * value[target]).max(1)[0]
            if (value - last).abs().max() < 1e-3:
                break
        return value

    return step


@ROWS.add("breadth first search by where", "100 nodes, 8 rounds read", goal=READ)
def search(at):
    edges = at.put((torch.rand(100, 100) < 0.03).float(), "x")

    def step():
        depth = torch.full((100,), -1, device=at.device)
        depth[0] = 0
        border, k = torch.tensor([0], device=at.device), 0
        while border.numel():
            k += 1
            new = (edges[border].sum(0) > 0) & (depth < 0)
            depth[new] = k
            border = torch.where(new)[0]
        return depth

    return step


@ROWS.add("wave equation by rolls", "50 steps on f32[64, 64]")
def wave(at):
    start = at.rows(64, 64)

    def step():
        u, v = start, torch.zeros_like(start)
        for _ in range(50):
            around = sum(u.roll(shift, dim) for shift in (1, -1) for dim in (0, 1))
            v = v + 0.1 * (around - 4 * u)
            u = u + 0.1 * v
        return u

    return step


@ROWS.add("views written in turn", "100 writes: rows, parts, the diagonal of f32[64, 64]")
def views(at):
    x = at.rows(64, 64)

    def step():
        y = x.clone()
        for i in range(20):
            y[i].mul_(0.5)
            y.view(8, 8, 64)[i % 8, 1].add_(1)
            y.diagonal().mul_(0.9)
            left, right = y.chunk(2, 1)
            left.add_(right)
            y.t()[i].zero_()
        return y

    return step
