# SPDX-License-Identifier: Apache-2.0
"""What an exchange leaves is read by an op that rounds by the order of its operand in memory.

Prints the bits of its result, a line a turn.
"""

import spmdx
import torch

MESH = spmdx.get_1d_mesh("data")
torch.manual_seed(0)
torch.set_default_dtype(torch.float64)


def on_mesh(tensor: torch.Tensor, *spec) -> torch.Tensor:
    return spmdx.mark_sharding(tensor.to("spmdx"), MESH, spec)


for _ in range(8):
    summed = on_mesh(torch.randn(27, 11), None, "data") @ on_mesh(torch.randn(11, 8), "data", None)
    x = on_mesh(torch.randn(9, 8, 3), None, None, None)
    layer = torch.nn.Conv1d(8, 8, 3, padding=1).to("spmdx")
    layer(x).backward(summed.view(9, 3, 8).transpose(1, 2))
    print([value.hex() for value in layer.bias.grad.cpu().tolist()])
