"""Elastic programs: an attempt has as many ranks as are available. The program is plain Python, saves by a rename, and
shows its number of ranks in its metrics."""

import itertools
import json
import os
import signal
import subprocess
import sys

import pytest

from service_fixture import BIN, descendants, make_service, wait_until

# Steps of rank 0 alone; the other ranks wait for their stop. step_s is long enough that no attempt reaches the end.
TRAINS = """
import json, mmap, os, struct, sys, time
folder, resume, rank = os.environ["TRAINYARD_CHECKPOINTS"], os.environ["TRAINYARD_RESUME"], int(os.environ["RANK"])
ranks, attempt = int(os.environ["WORLD_SIZE"]), int(os.environ["TRAINYARD_ATTEMPT"])
last, every = int(sys.argv[1]), int(sys.argv[2])
stops = open(os.environ["TRAINYARD_STOP"], "r+b") if "TRAINYARD_STOP" in os.environ else None
shared = mmap.mmap(stops.fileno(), 16) if stops else None
metrics = open(os.environ["TRAINYARD_METRICS"], "w", buffering=1)
step = json.load(open(resume + "/state.json")) if resume else 0
print("from", step, "with", ranks, "restart", os.environ["TORCHELASTIC_RESTART_COUNT"], flush=True)
def save():
    path = "%s/step-%d" % (folder, step)
    if rank == 0 and not os.path.exists(path):
        os.mkdir(path + ".tmp")
        with open(path + ".tmp/state.json", "w") as f: json.dump(step, f)
        os.rename(path + ".tmp", path)
while not (os.path.exists(sys.argv[3]) or last and step >= last):
    time.sleep(0.02)
    step += 1
    metrics.write(json.dumps({"step": step, "ranks": ranks, "attempt": attempt}) + "\\n")
    if every and step % every == 0: save()
    if shared:
        struct.pack_into("=q", shared, 8, step)
        if step >= struct.unpack_from("=q", shared)[0]: break
save()
"""


@pytest.fixture
def elastic_service():
    """One executor of two slots; a second one can be attached. A job grows after a second."""
    yield from make_service(executors=1, slots=2, options=["--elastic-settle", "1"])


def elastic(end, low=1, high=4, every=5, **own):
    return {"name": "elastic", "parallel": {"data": {"min": low, "max": high}},
            "program": {"command": [sys.executable, "-c", TRAINS, "0", str(every), str(end)], **own}}


class Executor:
    """A second host of the service."""

    def __init__(self, service, folder, slots=2):
        line = next(line for line in descendants(service.up.pid).values() if "trainyard-executor " in line).split()
        replaced = {"--directory": str(folder), "--slots": str(slots)}
        words = [replaced.get(line[i - 1], word) if i else word for i, word in enumerate(line)]
        self.process = subprocess.Popen(words, env=service.environment(), start_new_session=True)

    def kill(self):
        """The agent and all that it has started, as when the host loses power."""
        for pid in [self.process.pid, *descendants(self.process.pid)]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait()


def until_attempt(service, job, number, ranks):
    def runs():
        got = service.json("get", job)
        return got["state"] == "RUNNING" and int(got["attempt"]) == number and got
    got = wait_until(runs, 60, f"attempt {number}")
    assert int(got["attempts"][-1]["world_size"]) == ranks == len(got["attempts"][-1]["placements"])
    assert int(got.get("restarts", 0)) == 0
    return got


def events(service, job, kind):
    return [event["message"] for event in service.json("events", job)["events"] if event["kind"] == kind]


def check_metrics(service, job, world):
    """Each step once, and with the number of ranks of its attempt."""
    attempts, ranks = service.metric(job, "attempt"), service.metric(job, "ranks")
    assert sorted(attempts) == list(range(1, len(attempts) + 1))
    order = [attempts[step] for step in sorted(attempts)]
    assert order == sorted(order)
    assert all(ranks[step] == world[int(attempt)] for step, attempt in attempts.items())


def wait_step_after(service, job, more=10):
    before = int(service.json("get", job).get("step", 0))
    wait_until(lambda: int(service.json("get", job).get("step", 0)) >= before + more, 60, "more steps")


@pytest.mark.parametrize("stop", ["step", "signal"])
def test_a_job_grows_on_a_second_host_and_shrinks_when_that_is_lost(elastic_service, tmp_path, stop):
    service, end = elastic_service, tmp_path / "end"
    job = service.submit(elastic(end, stop=stop))
    until_attempt(service, job, 1, 2)
    wait_until(lambda: int(service.json("get", job).get("step", 0)) > 5, 60, "steps")
    assert "2 of up to 4 ranks: it grows when slots have been free for 1 s" in service.cli("explain", job).stdout
    second = Executor(service, tmp_path / "second")
    until_attempt(service, job, 2, 4)
    assert events(service, job, "elastic_grown") == ["from 2 to 4 ranks of 1 to 4: more slots are free"]
    assert "4 of up to 4 ranks: it has all of its ranks" in service.cli("explain", job).stdout
    wait_step_after(service, job)
    second.kill()
    until_attempt(service, job, 3, 2)
    assert events(service, job, "elastic_shrunk")[0].startswith("from 4 to 2 ranks of 1 to 4: fewer slots are free; ")
    wait_step_after(service, job)
    end.touch()
    ended = service.wait_end(job)
    assert [int(a["world_size"]) for a in ended["attempts"]] == [2, 4, 2]
    assert all(int(a.get("from_step", 0)) > 0 for a in ended["attempts"][1:])
    check_metrics(service, job, {1: 2, 2: 4, 3: 2})
    lines = [line["text"] for line in service.json("logs", job)["lines"] if line["text"].startswith("from ")]
    assert sum("with 4 restart 1" in line for line in lines) == 4


def test_a_job_grows_once_although_the_controller_is_killed_meanwhile(elastic_service, tmp_path):
    service, end = elastic_service, tmp_path / "end"
    job = service.submit(elastic(end, stop="step"))
    until_attempt(service, job, 1, 2)
    wait_until(lambda: int(service.json("get", job).get("step", 0)) > 5, 60, "steps")
    second = Executor(service, tmp_path / "second")
    try:
        with service.watch(job) as watch:
            watch.until_state("PREEMPTING")
        os.kill(service.pid_of("trainyard-controller"), signal.SIGKILL)
        until_attempt(service, job, 2, 4)
        wait_step_after(service, job)
        end.touch()
        ended = service.wait_end(job)
        assert [int(a["world_size"]) for a in ended["attempts"]] == [2, 4]
        check_metrics(service, job, {1: 2, 2: 4})
    finally:
        second.kill()


def test_without_a_checkpoint_a_job_is_not_stopped_in_order_to_grow(elastic_service, tmp_path):
    service, end = elastic_service, tmp_path / "end"
    job = service.submit(elastic(end, every=0))
    until_attempt(service, job, 1, 2)
    second = Executor(service, tmp_path / "second")
    try:
        wait_until(lambda: "it grows after its next checkpoint: 2 slots are free" in service.cli("explain", job).stdout,
                   60, "the explanation")
        wait_step_after(service, job, 100)
        assert int(service.json("get", job)["attempt"]) == 1
        end.touch()
        service.wait_end(job)
    finally:
        second.kill()


def test_a_range_reads_back_in_the_form_in_which_it_was_given(elastic_service, tmp_path):
    (tmp_path / "end").touch()
    job = elastic_service.submit(elastic(tmp_path / "end", low=2, high=8))
    assert elastic_service.json("get", job)["spec"]["parallel"]["data"] == {"min": 2, "max": 8}
    assert "data:\n      min: 2\n      max: 8" in elastic_service.cli("get", job, "-o", "yaml").stdout
    elastic_service.wait_end(job)


@pytest.mark.parametrize("data, sentence", [
    ({"min": 3, "max": 2}, "parallel.data.min: 3 is above parallel.data.max 2"),
    ({"min": 0, "max": 2}, "parallel.data.min: must be given, from 1 to 1024"),
    ({"min": 1, "max": 1025}, "parallel.data.max: 1025 is not from 1 to 1024"),
    ({"min": 1, "max": 2, "step": 1}, "parallel.data.step: unknown field"),
])
def test_a_wrong_range_is_refused_with_its_path(data, sentence, tmp_path):
    spec = tmp_path / "spec.yaml"
    words = ", ".join(f"{key}: {value}" for key, value in data.items())
    spec.write_text(f"name: wrong\nprogram: {{command: [sh]}}\nparallel: {{data: {{{words}}}}}\n")
    done = subprocess.run([BIN / "trainyard", "validate", spec], capture_output=True, text=True)
    assert done.returncode != 0 and sentence in done.stderr, done.stderr


def test_a_model_cannot_be_elastic(tmp_path):
    spec = tmp_path / "spec.yaml"
    example = (BIN.parents[1] / "docs" / "example.yaml")
    example = example if example.exists() else BIN.parents[2] / "docs" / "example.yaml"
    done = subprocess.run([BIN / "trainyard", "validate", example, "--set", "parallel.data={min: 1, max: 2}"],
                          capture_output=True, text=True)
    assert done.returncode != 0
    assert "parallel.data: {min, max} is for a program; the number of ranks is part of a model's plan" in done.stderr


def hosts_of(got):
    return {p["executor"].split("/")[1] for p in got["attempts"][-1]["placements"]}


def test_a_job_leaves_a_drained_host_with_fewer_ranks_and_grows_when_the_host_is_given_back(elastic_service, tmp_path):
    service, end = elastic_service, tmp_path / "end"
    first = service.json("executors")["executors"][0]["name"].split("/")[1]
    second = Executor(service, tmp_path / "second")
    try:
        wait_until(lambda: len(service.json("executors")["executors"]) == 2, 60, "the second host")
        job = service.submit(elastic(end, stop="step"))
        other = (hosts_of(until_attempt(service, job, 1, 4)) - {first}).pop()
        wait_step_after(service, job)
        service.cli("drain", other, "--now", "--wait")
        assert hosts_of(until_attempt(service, job, 2, 2)) == {first}
        wait_step_after(service, job)
        service.cli("undrain", other)
        until_attempt(service, job, 3, 4)
        wait_step_after(service, job)
        end.touch()
        ended = service.wait_end(job)
        assert [int(a["world_size"]) for a in ended["attempts"]] == [4, 2, 4]
        check_metrics(service, job, {1: 4, 2: 2, 3: 4})
    finally:
        second.kill()


@pytest.mark.parametrize("command, state", [("pause", "PAUSED"), ("cancel", "CANCELLED")])
def test_a_job_that_is_stopped_while_it_grows_does_not_continue(elastic_service, tmp_path, command, state):
    service, end = elastic_service, tmp_path / "end"
    job = service.submit(elastic(end, stop="step"))
    until_attempt(service, job, 1, 2)
    wait_step_after(service, job)
    second = Executor(service, tmp_path / "second")
    try:
        with service.watch(job) as watch:
            watch.until_state("PREEMPTING")
            service.cli(command, job)
        wait_until(lambda: service.json("get", job)["state"] == state, 30, state)
        if command == "pause":
            number = int(service.json("get", job)["attempt"]) + 1
            service.cli("resume", job)
            until_attempt(service, job, number, 4)
            end.touch()
            service.wait_end(job)
        gang = service.submit({"name": "all", "program": {"command": ["true"]}, "parallel": {"data": 4}})
        service.wait_end(gang)  # no slot is kept
    finally:
        second.kill()


def test_retries_and_forks_have_the_range_of_their_job(elastic_service, tmp_path):
    service = elastic_service
    failing = elastic(tmp_path / "end")
    failing["program"] = {"command": ["sh", "-c", f"test -e {tmp_path}/fixed || exit 3"]}
    failing["retry"] = {"max_restarts": 0}
    job = service.submit(failing)
    service.wait_end(job, "FAILED")
    (tmp_path / "fixed").touch()
    service.cli("retry", job)
    ended = service.wait_end(job)
    assert [int(a["world_size"]) for a in ended["attempts"]] == [2, 2]
    assert not events(service, job, "elastic_grown") and not events(service, job, "elastic_shrunk")

    (tmp_path / "end").touch()
    origin = service.submit(elastic(tmp_path / "end"))
    service.wait_end(origin)
    for changes, data, ranks in [([], {"min": 1, "max": 4}, 2), (["--set", "parallel.data=1"], 1, 1),
                                 (["--set", "parallel.data={min: 1, max: 2}"], {"min": 1, "max": 2}, 2),
                                 (["--set", "parallel.data.max=3"], {"min": 1, "max": 3}, 2)]:
        fork = service.cli("submit", "--fork", origin, *changes).stdout.strip()
        ended = service.wait_end(fork)
        assert ended["spec"]["parallel"]["data"] == data and int(ended["attempts"][0]["world_size"]) == ranks, changes


def test_a_stored_spec_with_a_range_is_a_spec_and_a_number_replaces_the_range(elastic_service, tmp_path):
    service, path = elastic_service, tmp_path / "again.yaml"
    (tmp_path / "end").touch()
    job = service.submit(elastic(tmp_path / "end"))
    service.wait_end(job)
    lines = service.cli("get", job, "-o", "yaml").stdout.partition("\nspec:\n")[2].splitlines()
    path.write_text("".join(line[2:] + "\n" for line in itertools.takewhile(lambda line: line.startswith("  "), lines)))
    again = service.cli("submit", path).stdout.strip()
    assert service.wait_end(again)["spec"] == service.json("get", job)["spec"]
    assert "1 to 4 ranks" in service.cli("validate", path).stdout
    fixed = service.cli("submit", path, "--set", "parallel.data=2").stdout.strip()
    assert int(service.wait_end(fixed)["spec"]["parallel"]["data"]) == 2
    path.write_text(json.dumps(service.json("get", fixed)["spec"]))
    ranged = service.cli("submit", path, "--set", "parallel.data={min: 1, max: 3}").stdout.strip()
    assert service.wait_end(ranged)["spec"]["parallel"]["data"] == {"min": 1, "max": 3}
    assert {job, again, fixed, ranged} <= {line.split()[0] for line in service.cli("list").stdout.splitlines()[1:]}


# As torchrun does: one command on each host starts PET_NPROC_PER_NODE ranks, and passes a stop on.
LAUNCHER = """
import os, signal, subprocess, sys
nodes, node, here = (int(os.environ["PET_" + name]) for name in ("NNODES", "NODE_RANK", "NPROC_PER_NODE"))
print(nodes, "hosts with", here, flush=True)
ranks = [subprocess.Popen(sys.argv[1:], env=dict(os.environ, RANK=str(node * here + local), WORLD_SIZE=str(nodes * here),
                                                 TORCHELASTIC_RESTART_COUNT="0")) for local in range(here)]
signal.signal(signal.SIGTERM, lambda *_: [rank.terminate() for rank in ranks])
sys.exit(any([rank.wait() for rank in ranks]))
"""


def test_a_launcher_on_each_host_learns_the_hosts_and_ranks_of_each_attempt(elastic_service, tmp_path):
    service, end = elastic_service, tmp_path / "end"
    spec = elastic(end, launcher="host")
    spec["program"]["command"] = [sys.executable, "-c", LAUNCHER, *spec["program"]["command"]]
    job = service.submit(spec)
    until_attempt(service, job, 1, 2)
    second = Executor(service, tmp_path / "second")
    until_attempt(service, job, 2, 4)
    wait_step_after(service, job)
    second.kill()
    until_attempt(service, job, 3, 2)
    wait_step_after(service, job)
    end.touch()
    service.wait_end(job)
    lines = service.json("logs", job)["lines"]
    told = sorted((int(line["attempt"]), line["text"]) for line in lines if " hosts with " in line["text"])
    assert told == [(1, "1 hosts with 2"), (2, "2 hosts with 2"), (2, "2 hosts with 2"), (3, "1 hosts with 2")]
    begun = [line["text"] for line in lines if line["text"].startswith("from ")]
    assert sum("with 4 " in text for text in begun) == 4 and sum("with 2 " in text for text in begun) == 4
    assert set(service.metric(job, "ranks").values()) == {2.0, 4.0}
