"""resume_jax.py STEPS: as jax_regression.py, slowly; process 0 saves every five steps, and all continue from there."""
import os
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}",
                           int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"]))
mesh = Mesh(np.array(jax.devices()), ("data",))
x = jax.make_array_from_callback((64,), NamedSharding(mesh, PartitionSpec("data")),
                                 lambda at: np.arange(64, dtype=np.float32)[at] / 64)
folder, resume = os.environ["TRAINYARD_CHECKPOINTS"], os.environ["TRAINYARD_RESUME"]


@jax.jit
def train_step(weight, x):
    loss, gradient = jax.value_and_grad(lambda w: jnp.mean((w * x - 3 * x) ** 2))(weight)
    return weight - 0.01 * gradient, loss


start, weight = 0, jnp.zeros(())
if resume:
    state = np.load(resume)
    start, weight = int(state["step"]), jnp.array(state["weight"])
for step in range(start + 1, int(sys.argv[1]) + 1):
    weight, loss = train_step(weight, x)
    time.sleep(0.03)
    if jax.process_index() == 0:
        with open(os.environ["TRAINYARD_METRICS"], "w") as metrics:
            metrics.write('{"step": %d, "loss": %r}\n' % (step, float(loss)))
        if step % 5 == 0:
            with open(f"{folder}/part", "wb") as part:
                np.savez(part, step=step, weight=np.array(weight))
            os.rename(f"{folder}/part", f"{folder}/step-{step}")
jax.distributed.shutdown()
