"""log_calls.py WAY: the median cost of a call that reports one metric, in milliseconds, 500 calls 2 ms apart."""

import os
import statistics
import sys
import time

CALLS = 500


def json_lines():
    metrics = open(os.environ["TRAINYARD_METRICS"], "w", buffering=1)
    return lambda step: metrics.write('{"step": %d, "loss": %r}\n' % (step, step / 2)), metrics.close


def tensorboard():
    from torch.utils.tensorboard import SummaryWriter
    writer = SummaryWriter(os.environ["TRAINYARD_TENSORBOARD"])
    return lambda step: writer.add_scalar("loss", step / 2, step), writer.close


def mlflow():
    import mlflow as client
    client.start_run()
    return lambda step: client.log_metric("loss", step / 2, step=step), client.end_run


def wandb():
    import wandb as client
    run = client.init(project="bench")
    return lambda step: run.log({"loss": step / 2}, step=step), run.finish


log, end = {"json": json_lines, "tensorboard": tensorboard, "mlflow": mlflow, "wandb": wandb}[sys.argv[1]]()
costs = []
for step in range(CALLS):
    begun = time.perf_counter()
    log(step)
    costs.append(time.perf_counter() - begun)
    time.sleep(0.002)
end()
print(f"p50_ms {1e3 * statistics.median(costs[50:]):.4f}", flush=True)
