"""DeepSpeed's "Getting started": deepspeed.initialize with a configuration of ZeRO, here on CPUs."""
import argparse
import os

import deepspeed
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--stage", type=int, default=2)
parser.add_argument("--local_rank", type=int, default=-1)
args = parser.parse_args()
deepspeed.init_distributed(dist_backend="gloo")
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
config = {"train_batch_size": 8, "optimizer": {"type": "Adam", "params": {"lr": 0.01, "torch_adam": True}},
          "zero_optimization": {"stage": args.stage}, "zero_allow_untested_optimizer": True,
          "tensorboard": {"enabled": True, "output_path": "runs", "job_name": "zero"}}
engine, optimizer, _, _ = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=config)
generator = torch.Generator().manual_seed(engine.global_rank)
x = torch.rand(4, 16, generator=generator)
for step in range(10):
    loss = torch.nn.functional.mse_loss(engine(x), x.sum(1, keepdim=True))
    engine.backward(loss)
    engine.step()
    if engine.global_rank == 0:
        engine.monitor.write_events([("loss", loss.item(), engine.global_steps)])
print(f"rank {engine.global_rank} of {engine.world_size} after step {engine.global_steps}", flush=True)
torch.distributed.destroy_process_group()
