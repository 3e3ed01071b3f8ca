"""JAX on several processes: jax.distributed, a global mesh, and a jitted step over sharded data."""
import os

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}",
                           int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"]))
mesh = Mesh(np.array(jax.devices()), ("data",))
sharded = NamedSharding(mesh, PartitionSpec("data"))
x = jax.make_array_from_callback((64,), sharded, lambda at: np.arange(64, dtype=np.float32)[at] / 64)


@jax.jit
def train_step(weight, x):
    loss, gradient = jax.value_and_grad(lambda w: jnp.mean((w * x - 3 * x) ** 2))(weight)
    return weight - gradient, loss


weight = jnp.zeros(())
with open(os.environ["TRAINYARD_METRICS"], "w", buffering=1) as metrics:
    for step in range(1, 21):
        weight, loss = train_step(weight, x)
        if jax.process_index() == 0:
            metrics.write('{"step": %d, "loss": %r}\n' % (step, float(loss)))
print(f"process {jax.process_index()} of {jax.process_count()} with {jax.device_count()} devices: {float(weight):.5f}", flush=True)
jax.distributed.shutdown()
