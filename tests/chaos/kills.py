"""kill -9 of one part of a running service, and the judgement of what must hold afterwards. Used by the tests (a few,
drawn from a printed seed) and by bench/chaos.py (many)."""

import os
import random
import signal
import time

from service_fixture import process_start_time, wait_until

TARGETS = ("worker", "executor", "controller", "postgres")


def pids_to_kill(service, job, target, draw):
    if target == "worker":
        return draw.choice(sorted(service.worker_pids(job).values()))[0]
    if target == "executor":
        return service.pid_of("trainyard-executor")
    if target == "controller":
        return service.pid_of("trainyard-controller")
    return service.postmaster_pid()


def run_job_with_a_kill(service, spec, target, seed):
    """Submits spec, kills target with SIGKILL at a seeded step while the job is shown RUNNING, waits for the end.
    Returns (job as it ended, facts about the kill). A client may see a step late, where the disk stalls: a job that is
    done by then is followed by another."""
    draw = random.Random(seed)
    steps = spec["train"]["steps"]
    at = draw.randint(steps // 8, steps // 4)
    for _ in range(5):
        ended, facts = kill_once(service, spec, target, seed, at, draw)
        if ended:
            return ended, facts
    raise AssertionError(f"five jobs were done before the kill at step {at}")


def kill_once(service, spec, target, seed, at, draw):
    """(None, None) when the job was done before it was seen at that step, or before the victim was killed."""
    job = service.submit(spec)
    facts = {"target": target, "seed": seed, "at_step": at}
    with service.watch(job) as watch:
        watch.until_step(at)
        before = service.json("get", job)
        if before["state"] == "SUCCEEDED":
            return None, None
        assert before["state"] == "RUNNING", before["state"]
        facts["workers"] = service.worker_pids(job)
        facts["committed_before"] = [c for c in service.json("checkpoints", job)["checkpoints"] if c["state"] == "COMMITTED"]
        victim = pids_to_kill(service, job, target, draw)
        start = process_start_time(victim)
        killed_at = time.time()
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: process_start_time(victim) != start, 5, "the victim is gone")
    ended = service.wait_end(job, timeout_s=180)
    if len(ended["attempts"]) == 1 and event_time(ended["attempts"][0]["end_time"]) < killed_at:
        return None, None
    facts["killed_at"] = killed_at
    return ended, facts


def event_time(text):
    from datetime import datetime
    head, _, fraction = text.rstrip("Z").partition(".")
    return datetime.fromisoformat(head + "+00:00").timestamp() + float("0." + (fraction or "0"))


def judge(service, ended, facts, digest):
    """What must hold after the kill, whatever was killed."""
    job = ended["name"].split("/")[-1]
    steps = int(ended["spec"]["train"]["steps"])
    said = f"{facts['target']} killed, seed {facts['seed']}, step {facts['at_step']}"
    assert ended["weights_sha256"] == digest, said
    loss = service.metric(job, "loss")
    assert sorted(loss) == list(range(1, steps + 1)), f"{said}: every step's loss is there once"
    events = service.json("events", job)["events"]
    if facts["target"] in ("worker", "executor"):
        assert ended["attempt"] == 2, f"{said}: exactly one more attempt"
        second = ended["attempts"][1]
        if facts["committed_before"]:
            assert int(second.get("from_step", 0)) > 0, f"{said}: not from step 0 once a checkpoint is COMMITTED"
        restarted = [e for e in events if e["state"] == "RESTARTING"]
        running = [e for e in events if e["state"] == "RUNNING" and e["attempt"] == 2]
        if facts["target"] == "worker":  # by its handle: no silence had to last, and no lease to end
            why = ended["attempts"][0]["reason"]
            assert "killed by signal 9" in why, f"{said}: {why}"
            facts["known_s"] = event_time(restarted[0]["time"]) - facts["killed_at"]
        facts["again_s"] = event_time(running[0]["time"]) - facts["killed_at"]
    else:
        assert ended["attempt"] == 1, f"{said}: the same attempt goes on"
        after = {int(p.get("rank", 0)): (int(p["pid"]), int(p["pid_start_time"])) for p in ended["attempts"][0]["placements"]}
        assert after == facts["workers"], f"{said}: the same worker processes"
    for rank, (pid, start) in facts["workers"].items():
        wait_until(lambda: process_start_time(pid) != start, 5, f"{said}: rank {rank} of the first attempt left no process")
