# SPDX-License-Identifier: Apache-2.0
"""Learn a game by policy gradients (PPO): the host plays, reads actions, and stops updates early.

    python examples/train_policy.py                # 8 virtual devices
    python examples/train_policy.py --cpu          # plain PyTorch

A ball falls, a paddle has to be below it. The game is on the host, the policy on the devices, its
batch of games cut. What the host reads (`.cpu()`, `.item()`) ends a step and waits for it. Actions
are drawn on the device: on any number of devices the same, in plain PyTorch others.
"""

import spmdx
import torch
from example_options import parse
from torch import nn
from torch.distributions import Categorical

GAMES, HEIGHT, WIDTH = 64, 6, 7
EPOCHS, CLIP, MAX_KL = 4, 0.2, 0.01


class Catch:
    """Many games at once: a ball falls down a grid of height x width; actions are -1, 0 and 1."""

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)

    def reset(self):
        self.row = 0
        self.ball, self.paddle = torch.randint(WIDTH, (2, GAMES), generator=self.generator)
        return self.seen()

    def seen(self):
        """Row, ball and paddle as one-hot vectors: [games, height + 2 * width]."""
        row = torch.eye(HEIGHT)[self.row].expand(GAMES, -1)
        return torch.cat((row, torch.eye(WIDTH)[self.ball], torch.eye(WIDTH)[self.paddle]), 1)

    def step(self, action):
        """(what is seen, the reward of each game, whether the ball is down)."""
        self.row += 1
        self.paddle = (self.paddle + action - 1).clamp(0, WIDTH - 1)
        done = self.row == HEIGHT - 1
        caught = (self.paddle == self.ball).to(torch.get_default_dtype())
        return self.seen(), caught if done else torch.zeros(GAMES), done


def play(game, policy, device, mesh):
    """One round: what was seen, actions, log-probabilities, each [games, turns, ...]; rewards."""
    seen, steps, done = game.reset(), [], False
    while not done:
        seen = seen.to(device)
        if mesh is not None:
            spmdx.mark_sharding(seen, mesh, ("data", None))
        with torch.no_grad():
            choice = Categorical(logits=policy(seen))
            action = choice.sample()
            steps.append((seen, action, choice.log_prob(action)))
        seen, reward, done = game.step(action.cpu())
    return [torch.stack(parts, 1) for parts in zip(*steps, strict=True)], reward


def update(policy, optimizer, seen, actions, before, advantage):
    """Some steps of PPO on one round; how many were made until the policy had moved far enough."""
    for epoch in range(EPOCHS):
        choice = Categorical(logits=policy(seen))
        ratio = (choice.log_prob(actions) - before).exp()
        gain = torch.minimum(ratio * advantage, ratio.clamp(1 - CLIP, 1 + CLIP) * advantage)
        (-gain.mean() - 0.01 * choice.entropy().mean()).backward()
        optimizer.step()
        optimizer.zero_grad()
        if (ratio - 1 - ratio.log()).mean().item() > MAX_KL:
            return epoch + 1
    return EPOCHS


def train(mesh, steps):
    """(the mean reward of each round, the updates made in it).

    Args:
        mesh: with an axis "data"; None for the CPU.
        steps: how many rounds.
    """
    torch.manual_seed(0)
    device = "cpu" if mesh is None else "spmdx"
    policy = nn.Sequential(nn.Linear(HEIGHT + 2 * WIDTH, 64), nn.Tanh(), nn.Linear(64, 3))
    policy.to(device)
    optimizer = torch.optim.Adam(policy.parameters(), lr=1e-2)
    game, rewards, updates = Catch(seed=1), [], []
    for _ in range(steps):
        (seen, actions, before), reward = play(game, policy, device, mesh)
        advantage = ((reward - reward.mean()) / (reward.std() + 1e-6))[:, None].to(device)
        updates.append(update(policy, optimizer, seen, actions, before, advantage))
        rewards.append(reward.mean().item())
    return rewards, updates


def main():
    options = parse(__doc__, steps=80)
    mesh = None if options.cpu else spmdx.get_1d_mesh("data")
    rewards, updates = train(mesh, options.steps)
    if spmdx.runtime.process_index() == 0:
        print(f"balls caught {rewards[0]:.1%} -> {rewards[-1]:.1%}, {sum(updates)} updates")


if __name__ == "__main__":
    main()
