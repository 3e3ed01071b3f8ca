"""torch's tutorial of pipeline parallelism: a model split by hand into two stages, and a GPipe schedule."""
import torch
import torch.distributed as dist
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.utils.tensorboard import SummaryWriter

dist.init_process_group("gloo")
rank, world = dist.get_rank(), dist.get_world_size()
torch.manual_seed(rank)
layers = [torch.nn.Linear(16, 16), torch.nn.ReLU()] if rank < world - 1 else [torch.nn.Linear(16, 1)]
model = torch.nn.Sequential(*layers)
stage = PipelineStage(model, rank, world, torch.device("cpu"))
schedule = ScheduleGPipe(stage, n_microbatches=4, loss_fn=torch.nn.functional.mse_loss)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
data = torch.rand(16, 16, generator=torch.Generator().manual_seed(7))
target = data.sum(1, keepdim=True)
writer = SummaryWriter() if rank == world - 1 else None    # the last stage has the loss
for step in range(1, 11):
    optimizer.zero_grad()
    losses = []
    if rank == 0:
        schedule.step(data)
    else:
        schedule.step(target=target, losses=losses)
    optimizer.step()
    if writer:
        writer.add_scalar("loss", torch.stack(losses).mean().item(), step)
if writer:
    writer.close()
print(f"stage {rank} of {world} is done", flush=True)
dist.destroy_process_group()
