# SPDX-License-Identifier: Apache-2.0
"""recompiles.log is what torch 2.6 said of this: TORCH_LOGS=recompiles python3 recompiles.py 2>recompiles.log"""
import torch
torch.manual_seed(0)
layer = torch.nn.Linear(64, 64)

@torch.compile(backend="eager", dynamic=False)
def step(x, scale):
    return (layer(x) * scale).sum()

for i in range(1, 6):
    step(torch.ones(8 * i, 64), 1.0)
