"""resume_mpi.py STEPS: as mpi_regression.py, slowly; rank 0 saves every five steps, and all ranks continue from there."""
import json
import os
import sys
import time

from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.Get_rank(), comm.Get_size()
folder, resume = os.environ["TRAINYARD_CHECKPOINTS"], os.environ["TRAINYARD_RESUME"]
samples = [i / 50 for i in range(rank, 50, size)]
state = json.load(open(resume)) if resume else {"step": 0, "weight": 0.0}
for step in range(state["step"] + 1, int(sys.argv[1]) + 1):
    errors = [(state["weight"] - 3) * x for x in samples]
    gradient = comm.allreduce(sum(2 * e * x for e, x in zip(errors, samples)) / 50, op=MPI.SUM)
    loss = comm.allreduce(sum(e * e for e in errors) / 50, op=MPI.SUM)
    time.sleep(0.03)
    state = {"step": step, "weight": state["weight"] - 0.01 * gradient}
    if rank == 0:
        with open(os.environ["TRAINYARD_METRICS"], "w") as metrics:
            metrics.write(json.dumps({"step": step, "loss": loss}) + "\n")
        if step % 5 == 0:
            with open(f"{folder}/part", "w") as part:
                json.dump(state, part)
            os.rename(f"{folder}/part", f"{folder}/step-{step}")
