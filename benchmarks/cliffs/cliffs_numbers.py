# SPDX-License-Identifier: Apache-2.0
"""Numbers that the host reads or gives: scalars read often, Python ints that change an index."""

import torch
import torch.nn.functional as F
from cliff_row import EVERYWHERE, Goal, Rows, with_sgd
from torch import nn

ROWS = Rows()
READ = Goal(factor=3.0)
INDEX = Goal(judged=EVERYWHERE)


def layers(count, width):
    return nn.Sequential(*[nn.Linear(width, width) for _ in range(count)])


def regression(at, width, rows=64):
    x = at.rows(rows, width)
    return lambda m: m(x).square().mean()


@ROWS.add("Adafactor", "40 linear layers of 128, batch 64", goal=READ)
def adafactor(at):
    model = at.model(layers(40, 128))
    optimizer, loss_of = torch.optim.Adafactor(model.parameters()), regression(at, 128)

    def step():
        optimizer.zero_grad()
        loss_of(model).backward()
        optimizer.step()
        return model[0].bias.detach()

    return step


@ROWS.add("LBFGS, strong Wolfe", "logistic regression, 1,000 x 50, 10 iterations", goal=READ)
def lbfgs(at):
    x, y = at.rows(1000, 50), at.put(torch.rand(1000).round(), "x")
    w = at.put(torch.zeros(50)).requires_grad_()
    optimizer = torch.optim.LBFGS([w], max_iter=10, line_search_fn="strong_wolfe")

    def closure():
        optimizer.zero_grad()
        loss = F.binary_cross_entropy_with_logits(x @ w, y)
        loss.backward()
        return loss

    def step():
        with torch.no_grad():
            w.zero_()
        optimizer.state.clear()
        optimizer.step(closure)
        return w.detach()

    return step


@ROWS.add("GradScaler", "8 linear layers of 256, batch 256", goal=READ)
def grad_scaler(at):
    model = at.model(layers(8, 256))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scaler, loss_of = torch.amp.GradScaler(at.device), regression(at, 256, 256)

    def step():
        loss = loss_of(model)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        return loss.detach()

    return step


@ROWS.add("PPO: 16 acts read, 4 updates", "policy 64-256-8, 64 environments", goal=READ)
def ppo(at):
    model = at.model(nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 8)))
    optimizer, start = torch.optim.Adam(model.parameters(), lr=1e-4), torch.randn(64, 64)

    def step():
        state, seen, acts = start, [], []
        for _ in range(16):
            seen.append(state)
            with torch.no_grad():
                acts.append(model(at.put(state, "x")).argmax(-1).cpu())
            state = state.roll(1, 1) + acts[-1][:, None] / 8
        x, a = at.put(torch.cat(seen), "x"), at.put(torch.cat(acts), "x")
        for _ in range(4):
            loss = F.cross_entropy(model(x), a)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return loss.detach()

    return step


@ROWS.add("loss read each step", "3 linear layers of 256, batch 256")
def loss_read(at):
    run = with_sgd(at.model(layers(3, 256)), regression(at, 256, 256))
    return lambda: torch.tensor(run().item())


@ROWS.add("ten metrics read each step", "3 linear layers of 256, batch 256", goal=READ)
def metrics_read(at):
    model, x = at.model(layers(3, 256)), at.rows(256, 256)

    def step():
        y = model(x)
        numbers = [y.mean(), y.std(), y.max(), y.min(), y.norm(), (y > 0).float().mean()]
        numbers += [p.norm() for p in list(model.parameters())[:4]]
        return torch.tensor([number.item() for number in numbers])

    return step


@ROWS.add("a tensor printed", "f32[256, 256] after a product")
def printed(at):
    x = at.rows(256, 256)

    def step():
        repr(x @ x)

    return step


@ROWS.add("clipping by a norm that is read", "8 linear layers of 256, batch 256", goal=READ)
def clip_read(at):
    model = at.model(layers(8, 256))
    loss_of = regression(at, 256, 256)

    def step():
        loss_of(model).backward()
        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        if norm.item() > 1e6:
            raise ValueError(norm)
        model.zero_grad()
        return norm

    return step


# --- Python ints ----------------------------------------------------------------------------------


@ROWS.add("X[k:k+B] of resident data", "8 linear layers of 128, 32 of 4,000 rows", goal=INDEX)
def resident(at):
    model, data, at_row = at.model(layers(8, 128)), at.put(torch.randn(4000, 128)), [0]

    def loss_of(m):
        at_row[0] = (at_row[0] + 32) % 3900
        return m(data[at_row[0] : at_row[0] + 32]).square().mean()

    return with_sgd(model, loss_of)


@ROWS.add("ring buffer[i % N] = x", "f32[1024, 256], sampled by index", goal=INDEX)
def ring(at):
    buffer, x, i = at.put(torch.zeros(1024, 256)), at.whole(256), [0]
    sample = at.put(torch.randint(1024, (256,)))

    def step():
        i[0] += 1
        buffer[i[0] % 1024] = x * i[0]
        return buffer[sample].square().sum()

    return step


@ROWS.add("static KV cache[:, i] = k", "f32[8, 512, 64], attention over all", goal=INDEX)
def cache_by_int(at):
    keys, new, i = at.put(torch.zeros(8, 512, 64), "x"), at.rows(8, 64), [0]

    def step():
        i[0] = (i[0] + 1) % 512
        keys[:, i[0]] = new
        scores = torch.einsum("bd,btd->bt", new, keys)
        mask = torch.arange(512, device=at.device) > i[0]
        return torch.softmax(scores.masked_fill(mask, -torch.inf), -1)

    return step


@ROWS.add("truncated BPTT over x[:, k:k+8]", "LSTM of 64, batch 32, 8 of 800 steps", goal=INDEX)
def bptt(at):
    model, x, k = at.model(nn.LSTM(64, 64, batch_first=True)), at.rows(32, 800, 64), [0]
    optimizer, state = torch.optim.SGD(model.parameters(), lr=1e-3), [None]

    def step():
        k[0] = (k[0] + 8) % 792
        y, carried = model(x[:, k[0] : k[0] + 8], state[0])
        state[0] = tuple(s.detach() for s in carried)
        loss = y.square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.detach()

    return step


@ROWS.add("generation, growing KV cache", "torch.cat, 4 heads of 64, 1 to 64 tokens, batch 8")
def growing(at):
    w, start = at.whole(256, 768), at.rows(8, 1, 256)

    def step():
        keys = values = None
        x = start
        for _ in range(64):
            q, k, v = (x @ w * 0.05).unflatten(-1, (12, 64)).transpose(1, 2).chunk(3, 1)
            keys = k if keys is None else torch.cat([keys, k], 2)
            values = v if values is None else torch.cat([values, v], 2)
            x = F.scaled_dot_product_attention(q, keys, values).transpose(1, 2).flatten(2)
        return x

    return step


@ROWS.add("batch sizes that alternate", "8 linear layers of 128, 5 sizes")
def sizes(at):
    model, batches, i = at.model(layers(8, 128)), [at.rows(32 + 8 * n, 128) for n in range(5)], [0]

    def loss_of(m):
        i[0] += 1
        return m(batches[i[0] % 5]).square().mean()

    step = with_sgd(model, loss_of)

    def five():
        for _ in range(5):
            loss = step()
        return loss

    return five
