"""torch's tutorial of FSDP2: fully_shard on each layer and on the model; the parameters are DTensors."""
import os

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor
from torch.utils.tensorboard import SummaryWriter

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.TransformerEncoderLayer(32, 2, 64, dropout=0, batch_first=True) for _ in range(2)])
mesh = init_device_mesh("cpu", (world,))
for layer in model:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
assert isinstance(model, FSDPModule)
assert all(isinstance(p, DTensor) and p.to_local().numel() <= (p.numel() + world) // world + 64 for p in model.parameters())
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
writer = SummaryWriter() if rank == 0 else None
generator = torch.Generator().manual_seed(rank)
batch = torch.rand(4, 8, 32, generator=generator)
for step in range(1, 11):
    loss = (model(batch) - batch.flip(1)).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    if writer:
        writer.add_scalar("loss", loss.item(), step)
if writer:
    writer.close()
full = sum(p.full_tensor().sum().item() for p in model.parameters())
print(f"rank {rank} of {world}: parameters {full:.5f}", flush=True)
dist.destroy_process_group()
