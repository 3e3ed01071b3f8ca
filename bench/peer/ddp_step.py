"""ddp_step.py STEPS: times a step of DistributedDataParallel that reports its loss each time. Rank 0 prints the median
step's milliseconds, of which those of the report, and the processors that it may use."""

import json
import os
import statistics
import sys
import time

import torch
import torch.distributed as dist

torch.set_num_threads(1)
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Sequential(*[torch.nn.Linear(512, 512) for _ in range(4)]))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
data = torch.rand(32, 512)
metrics = open(os.environ["TRAINYARD_METRICS"], "w", buffering=1) if rank == 0 else None
steps, reports = [], []
for step in range(1, int(sys.argv[1]) + 1):
    begun = time.perf_counter()
    loss = model(data).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    value, reported = loss.item(), time.perf_counter()
    if metrics:
        metrics.write('{"step": %d, "loss": %r}\n' % (step, value))
    ended = time.perf_counter()
    steps.append(ended - begun)
    reports.append(ended - reported)
half = len(steps) // 4    # the first steps warm up
if rank == 0:
    print(json.dumps({"step_ms": 1e3 * statistics.mean(steps[half:]), "report_ms": 1e3 * statistics.median(reports[half:]),
                      "cores": sorted(os.sched_getaffinity(0))}), flush=True)
dist.barrier()
os._exit(0)    # skips PyTorch's destructors: in version 2.13 they sometimes abort the process
