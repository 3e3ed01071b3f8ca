"""Programs that take more than they may: memory, processes, time to end. Each ends with a sentence that says so, and
harms nothing else: a job beside it on the same executor finishes, and the executor keeps its lease.

The limits are those of control groups, so that the tests need a host that gives them to this user."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

import pytest

from service_fixture import BIN, PATIENCE, SANITIZED, Service, process_start_time, wait_until

MIB = 1 << 20
METRIC = "import os\nopen(os.environ['TRAINYARD_METRICS'], 'w').write('{\"step\": 1, \"loss\": 1}\\n')\n"
EAT = "blocks = []\nwhile True:\n    blocks.append(b'x' * (1 << 20))\n"


@contextlib.contextmanager
def executor_of(directory, service, name, *options, status=0):
    """An executor of four slots with programs, in a process of its own."""
    log = directory / f"{name}.log"
    process = subprocess.Popen(
        [BIN / "trainyard-executor", "--controller", service.address, "--directory", directory / name, "--slots", "4",
         "--checkpoint-root", directory / "checkpoints", "--allow-programs", "--log-format", "json", *options],
        stdout=subprocess.PIPE, stderr=open(log, "ab"), env=service.environment(), text=True)
    try:
        assert process.stdout.readline().startswith("ready "), log.read_text()
        yield process
    finally:
        process.terminate()
        ended = process.wait(40 * PATIENCE)
        process.stdout.close()
    assert ended == status


@pytest.fixture(scope="module")
def place():
    directory = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-limits-"))
    directory.chmod(0o755)
    (directory / "checkpoints").mkdir()
    (directory / "service").mkdir()
    service = Service(directory / "service", executors=0).start()
    yield directory, service
    service.stop()
    shutil.rmtree(directory)


def not_enforced(directory, name="host"):
    return [line for line in (directory / f"{name}.log").read_text().splitlines() if "not_enforced" in line]


@pytest.fixture(scope="module")
def host(place):
    """The service, with one executor whose ranks share 768 MiB and may have 100 processes each."""
    directory, service = place
    with executor_of(directory, service, "host", "--memory-mib", "768", "--processes-max", "100") as process:
        service.not_enforced = [json.loads(line)["message"] for line in not_enforced(directory)]
        service.executor_pid = process.pid
        yield service


def needs(service, limit):
    """Skips a test whose limit this host does not enforce; other limits do not matter to it."""
    for sentence in service.not_enforced:
        if limit in sentence.partition(":")[0]:
            pytest.skip(f"not here: {sentence}")


@contextlib.contextmanager
def neighbour(service):
    """A job beside the one that misbehaves: it ends only when it may, and then with success."""
    done = service.directory / "done"
    job = service.submit({"name": "neighbour", "program": {"command": ["sh", "-c", f"""
        echo '{{"step": 1, "loss": 1}}' > $TRAINYARD_METRICS; until test -e {done}; do sleep 0.1; done"""]}})
    with service.watch(job) as watch:
        watch.until_step(1)
    executor = process_start_time(service.executor_pid)
    yield job
    done.touch()
    ended = service.wait_end(job)
    done.unlink()
    assert ended["attempt"] == 1 and process_start_time(service.executor_pid) == executor
    assert service.json("executors")["executors"][0]["state"] == "ATTACHED"


def script(service, text):
    path = service.directory / "script.py"
    path.write_text(text)
    return [sys.executable, str(path)]


def fails(service, command, memory=0, **more):
    spec = {"name": "attack", "program": {"command": command}, "retry": {"max_restarts": 1}, **more}
    if memory:
        spec["resources"] = {"memory_bytes": memory}
    job = service.submit(spec)
    return service.wait_end(job, "FAILED"), job


def events(service, job, kind):
    return [event for event in service.json("events", job)["events"] if event["kind"] == kind]


def test_a_program_that_uses_more_than_its_memory_is_not_retried(host):
    needs(host, "memory")
    with neighbour(host):
        ended, job = fails(host, script(host, METRIC + EAT), memory=200 * MIB)
    assert ended["reason"] == ("rank 0: memory ran out: its processes used all of their 200.0 MiB (resources.memory_bytes), "
                               "and the kernel killed one")
    assert ended["attempt"] == 1
    assert events(host, job, "memory_limit")


def test_a_child_that_is_killed_for_memory_is_the_reason_even_if_the_command_fails_later(host):
    needs(host, "memory")
    ended, _ = fails(host, script(host, METRIC + f"""
import sys
if os.fork() == 0:
    exec({EAT!r})
os.wait()
raise RuntimeError('DataLoader worker exited unexpectedly')
"""), memory=200 * MIB)
    assert "rank 0: memory ran out: its processes used all of their 200.0 MiB" in ended["reason"]
    assert ended["attempt"] == 1


def test_memory_of_all_ranks_that_runs_out_counts_as_a_restart(host):
    needs(host, "memory")
    with neighbour(host):
        ended, _ = fails(host, script(host, METRIC + EAT))
    assert ("memory ran out: the ranks of this executor together used all of their 768.0 MiB (--memory-mib), and the "
            "kernel killed a process of this rank") in ended["reason"]
    assert ended["attempt"] == 2


def test_the_memory_of_a_launcher_is_that_of_all_ranks_of_its_host(host):
    needs(host, "memory")
    text = METRIC + "block = b'x' * (300 << 20)\n"
    spec = {"name": "launcher", "program": {"command": script(host, text), "launcher": "host"}, "parallel": {"data": 2},
            "resources": {"memory_bytes": 200 * MIB}}
    host.wait_end(host.submit(spec))


def test_the_processes_of_a_launcher_are_those_of_all_ranks_of_its_host(host):
    needs(host, "processes")
    text = METRIC + """
import subprocess
children = [subprocess.Popen(['sleep', '600']) for _ in range(150)]
for child in children:
    child.kill()
"""
    spec = {"name": "launcher", "program": {"command": script(host, text), "launcher": "host"}, "parallel": {"data": 2},
            "retry": {"max_restarts": 0}}
    host.wait_end(host.submit(spec))


def test_the_memory_of_a_launcher_that_no_number_holds_is_no_limit(host):
    needs(host, "memory")
    bytes_of_a_rank = (1 << 64) // 3 + 1  # three times that is 2, if only 64 bits of it are kept
    spec = {"name": "launcher", "program": {"command": script(host, METRIC), "launcher": "host"}, "parallel": {"data": 3},
            "resources": {"memory_bytes": bytes_of_a_rank}, "retry": {"max_restarts": 0}}
    host.wait_end(host.submit(spec))


@pytest.mark.parametrize("command", [["sh", "-c", "bomb() { bomb | bomb & }; bomb; sleep 1; wait; exit 7"],
                                     [sys.executable, "-c", "import os\nwhile True:\n    os.fork()"]], ids=["sh", "python"])
def test_a_fork_bomb_ends_with_its_rank(host, command):
    needs(host, "processes")
    with neighbour(host):
        job = host.submit({"name": "bomb", "program": {"command": command}, "retry": {"max_restarts": 0}})
        with host.watch(job) as watch:
            watch.until_event("process_limit")
        host.cli("cancel", job, status=None)
        wait_until(lambda: host.json("get", job)["state"] in ("FAILED", "CANCELLED"), 30, "the end of the bomb")
        (event,) = events(host, job, "process_limit")
        assert "--processes-max" in event["message"]
    wait_until(lambda: not groups_of(host, f"job-{job}-"), 10, "the removal of the rank's control group")


def groups_of(service, part):
    del service
    roots = ["/sys/fs/cgroup"]
    return [path for root in roots for path, _, _ in os.walk(root) if "/trainyard-" in path and part in path]


def test_a_child_in_a_session_of_its_own_that_ignores_signals_ends_with_its_rank(host):
    needs(host, "processes")
    pids = host.directory / "pids"
    with neighbour(host):
        job = host.submit({"name": "stubborn", "program": {"command": script(host, METRIC + f"""
import signal, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        open({str(pids)!r}, 'w').write(str(os.getpid()))
        while True:
            time.sleep(60)
    os._exit(0)
time.sleep(3600)
""")}})
        pid = int(wait_until(lambda: pids.exists() and pids.read_text(), 30, "the child"))
        start = process_start_time(pid)
        (rank, _), = host.worker_pids(job).values()
        os.kill(rank, signal.SIGKILL)  # nobody is left who knows the child but its control group
        wait_until(lambda: process_start_time(pid) != start, 10, "the end of the child")
        host.cli("cancel", job)
        host.wait_end(job, "CANCELLED")


def test_an_executor_that_starts_again_ends_and_removes_what_a_killed_one_left(place, host):
    needs(host, "processes")
    directory, service = place
    with executor_of(directory, service, "killed", status=-signal.SIGKILL) as process:
        job = service.submit({"name": "left", "program": {"command": ["sh", "-c", """
            echo '{"step": 1, "loss": 1}' > $TRAINYARD_METRICS; sleep 3600"""]}, "parallel": {"data": 5},
            "retry": {"max_restarts": 0}})
        with service.watch(job) as watch:
            watch.until_step(1)
        (group,) = {path for path in groups_of(service, f"job-{job}-attempt-1-rank-4") if "/pids/" in path or "unified" in path
                    or pathlib.Path(path, "pids.max").exists()}
        process.kill()
        service.cli("cancel", job)
        service.wait_end(job, "CANCELLED")
        assert not SANITIZED or group
    with executor_of(directory, service, "killed"):
        assert not os.path.exists(group)
    assert not os.path.exists(os.path.dirname(group)), "an executor that ends removes its groups"
