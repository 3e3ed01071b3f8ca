"""resume_ddp.py STEPS: torch's DistributedDataParallel with a checkpoint every five steps, as in its tutorial."""
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo")
rank = dist.get_rank()
folder, resume = os.environ["TRAINYARD_CHECKPOINTS"], os.environ["TRAINYARD_RESUME"]
torch.manual_seed(0)
model = DDP(torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
start = 0
if resume:
    state = torch.load(resume)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    start = state["step"]
for step in range(start + 1, int(sys.argv[1]) + 1):
    x = torch.rand(4, 16, generator=torch.Generator().manual_seed(2 * step + rank))
    loss = (model(x) - x.sum(1, keepdim=True)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(0.03)
    if rank == 0:
        with open(os.environ["TRAINYARD_METRICS"], "w") as metrics:
            metrics.write('{"step": %d, "loss": %r}\n' % (step, loss.item()))
        if step % 5 == 0:
            torch.save({"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}, f"{folder}/part")
            os.rename(f"{folder}/part", f"{folder}/step-{step}")
dist.destroy_process_group()
