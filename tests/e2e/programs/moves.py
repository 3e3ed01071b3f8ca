"""Saves every five steps, and when it is asked to stop. With launcher `ranks`, rank 0 of the gang saves. With launcher
`host`, the command has no rank: it starts two processes, the first of which saves."""
import os
import signal
import subprocess
import sys
import time

if os.environ["LAUNCHES"] == "1" and "RANK" not in os.environ:
    own = [subprocess.Popen([sys.executable, *sys.argv], env=dict(os.environ, RANK=str(rank))) for rank in (0, 1)]
    signal.signal(signal.SIGTERM, lambda *_: None)    # the group's processes have got it, too
    while not any(process.poll() for process in own) and any(process.poll() is None for process in own):
        time.sleep(0.02)
    for process in own:
        process.terminate()    # as torchrun does if one has failed
    sys.exit(1 if any([process.wait() for process in own]) else 0)
rank, folder, resume = int(os.environ["RANK"]), os.environ["TRAINYARD_CHECKPOINTS"], os.environ["TRAINYARD_RESUME"]
attempt, fails = int(os.environ["TRAINYARD_ATTEMPT"]), "FAILS" in os.environ
step = int(open(resume).read()) if resume else 0
print("rank", rank, "from", step, flush=True)


def save():
    with open(folder + "/part", "w") as part:
        part.write(str(step))
    os.rename(folder + "/part", folder + "/step-%d" % step)


stop = []
signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
metrics = open(os.environ["TRAINYARD_METRICS"], "w", buffering=1) if rank == 0 else None
while not stop:
    step += 1
    time.sleep(0.02)
    if metrics:
        metrics.write('{"step": %d, "attempt": %d}\n' % (step, attempt))
    if metrics and step % 5 == 0:
        save()
    if fails and rank == 0 and attempt == 1 and step == 12:
        raise ValueError("a bad batch")
if metrics:
    save()
