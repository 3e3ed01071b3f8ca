"""Workers that are another user than their agent: what they may, and that the agent still looks after them."""

import contextlib
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import tempfile

import pytest

from service_fixture import BIN, PATIENCE, Service, process_start_time, wait_until

USER = "nobody"
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="starting processes as other users needs root")


def status_of(pid):
    """The lines of /proc/PID/status, by their names."""
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.split() for name, _, value in (line.partition(":") for line in lines)}


@pytest.fixture(scope="module")
def place(text_file):
    """A folder that every user reaches, with data for all and checkpoints for the worker's user."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-user-"))
    directory.chmod(0o755)
    shutil.copy(text_file, directory / "text")
    (directory / "text").chmod(0o644)
    (directory / "closed").write_text((directory / "text").read_text())
    (directory / "closed").chmod(0o600)
    (directory / "checkpoints").mkdir()
    os.chown(directory / "checkpoints", pwd.getpwnam(USER).pw_uid, -1)
    (directory / "service").mkdir()
    service = Service(directory / "service", executors=0, checkpoint_roots=[directory / "checkpoints"]).start()
    socket = pathlib.Path(service.address.removeprefix("unix:"))
    socket.parent.chmod(0o711)  # an agent of another user dials it below
    socket.chmod(0o666)
    service.token = service.cli("token", "create", "agents", "--role", "EXECUTOR", "--shared").stdout.strip()  # another user needs one
    yield directory, service
    service.stop()
    shutil.rmtree(directory)


@contextlib.contextmanager
def executor(place, name, *before, status=0, options=(), umask=-1):
    directory, service = place
    process = subprocess.Popen(
        [*before, BIN / "trainyard-executor", "--controller", service.address, "--directory", directory / name / "state", "--slots",
         "2", "--data-root", directory, "--checkpoint-root", directory / "checkpoints", "--worker-user", USER, *options],
        stdout=subprocess.PIPE, stderr=open(directory / f"{name}.log", "wb"), text=True, umask=umask,
        env=service.environment() | {"TRAINYARD_TOKEN": service.token})
    try:
        assert process.stdout.readline().startswith("ready "), (directory / f"{name}.log").read_text()
        yield process
    finally:
        process.terminate()
        ended = process.wait(40 * PATIENCE)
        process.stdout.close()
    assert ended == status


def spec_in(place, tiny, text, **more):
    directory, _ = place
    return tiny(data__text={"files": [f"file://{directory / text}"], "validation_fraction": 0.1},
                checkpoint__directory=f"file://{directory / 'checkpoints'}", **more)


def assert_unprivileged(pid):
    status, user = status_of(pid), pwd.getpwnam(USER)
    assert status["Uid"] == [str(user.pw_uid)] * 4 and status["Gid"] == [str(user.pw_gid)] * 4
    assert "0" not in status["Groups"] and status["NoNewPrivs"] == ["1"]
    for name in ("CapInh", "CapPrm", "CapEff", "CapAmb"):
        assert int(status[name][0], 16) == 0, (name, status[name])


def train_and_kill(place, tiny):
    """A gang of two as the other user, which its agent ends when it is told, and at once when the agent is killed."""
    _, service = place
    job = service.submit(spec_in(place, tiny, "text", data=2, steps=20))
    ended = service.wait_end(job)
    assert ended["state"] == "SUCCEEDED"
    job = service.submit(spec_in(place, tiny, "text", data=2, steps=100000))
    with service.watch(job) as watch:
        watch.until_step(2)
    workers = service.worker_pids(job)
    for pid, _ in workers.values():
        assert_unprivileged(pid)
    service.cli("cancel", job)
    service.wait_end(job, "CANCELLED")
    for pid, start in workers.values():
        wait_until(lambda pid=pid, start=start: process_start_time(pid) != start, 10, "the worker is gone")


def test_workers_of_a_root_agent_are_the_other_user_without_privileges(place, tiny):
    _, service = place
    with executor(place, "root"):
        train_and_kill(place, tiny)
        job = service.submit(spec_in(place, tiny, "closed", steps=3, retry__max_restarts=0), "--skip-check")
        assert "Permission denied" in service.wait_end(job, "FAILED")["reason"]


def test_an_agent_that_is_no_root_needs_three_capabilities(place, tiny):
    directory, service = place
    agent = pwd.getpwnam("daemon")
    as_agent = ["setpriv", f"--reuid={agent.pw_uid}", f"--regid={agent.pw_gid}", "--clear-groups"]
    if subprocess.run([*as_agent, "test", "-x", BIN / "trainyard-worker"]).returncode != 0:
        pytest.skip("the programs lie where other users do not reach")
    (directory / "agent").mkdir()
    os.chown(directory / "agent", agent.pw_uid, -1)
    done = subprocess.run([*as_agent, BIN / "trainyard-executor", "--controller", service.address, "--directory",
                           directory / "agent" / "state", "--checkpoint-root", directory, "--worker-user", USER],
                          capture_output=True, text=True, timeout=60 * PATIENCE)
    assert done.returncode == 2 and "CAP_SETUID, CAP_SETGID and CAP_KILL" in done.stderr, done.stderr
    three = "+setuid,+setgid,+kill"
    with executor(place, "agent", *as_agent, f"--inh-caps=-all,{three}", f"--ambient-caps=-all,{three}",
                  f"--bounding-set=-all,{three}") as process:
        assert status_of(process.pid)["Uid"][0] == str(agent.pw_uid)
        train_and_kill(place, tiny)
        job = service.submit(spec_in(place, tiny, "text", steps=100000))
        with service.watch(job) as watch:
            watch.until_step(2)
        (pid, start), = service.worker_pids(job).values()
        service.cli("pause", job, "--wait")
        service.cli("cancel", job)
        wait_until(lambda: process_start_time(pid) != start, 10, "the worker is gone")


def test_an_agent_that_may_give_folders_away_has_a_token_cache_at_each_start(place):
    """As its unit starts it: the folder of the tokens is its own, and in it that of the user who encodes."""
    directory, _ = place
    agent = pwd.getpwnam("daemon")
    four = "+setuid,+setgid,+kill,+chown"
    before = ["setpriv", f"--reuid={agent.pw_uid}", f"--regid={agent.pw_gid}", "--clear-groups", f"--inh-caps=-all,{four}",
              f"--ambient-caps=-all,{four}", f"--bounding-set=-all,{four}"]
    if subprocess.run([*before, "test", "-x", BIN / "trainyard-worker"]).returncode != 0:
        pytest.skip("the programs lie where other users do not reach")
    for name in ("giving", "giving/tokens"):
        (directory / name).mkdir()
        os.chown(directory / name, agent.pw_uid, -1)
    for _ in range(2):
        with executor(place, "giving", *before, options=("--token-cache", directory / "giving/tokens"), umask=0o007):
            assert "no_token_cache" not in (directory / "giving.log").read_text()
            made = (directory / "giving/tokens/texts").stat()
            assert (made.st_uid, made.st_mode & 0o7777) == (pwd.getpwnam(USER).pw_uid, 0o711)
    with executor(place, "giving", *before):
        assert "no_token_cache" in (directory / "giving.log").read_text()


def test_workers_die_with_an_agent_that_is_killed(place, tiny):
    _, service = place
    with executor(place, "killed", status=-signal.SIGKILL) as process:
        job = service.submit(spec_in(place, tiny, "text", data=2, steps=100000))
        with service.watch(job) as watch:
            watch.until_step(2)
        workers = service.worker_pids(job)
        process.send_signal(signal.SIGKILL)
        for pid, start in workers.values():
            wait_until(lambda pid=pid, start=start: process_start_time(pid) != start, 10, "the worker dies with its agent")
        service.cli("cancel", job)


def test_root_and_unknown_users_are_refused(tmp_path):
    for user, words in (("root", "'root' is root"), ("nobody-at-all", "is not a user of this host")):
        done = subprocess.run([BIN / "trainyard-executor", "--controller", "unix:/none", "--directory", tmp_path, "--checkpoint-root",
                               tmp_path, "--worker-user", user], capture_output=True, text=True, timeout=60 * PATIENCE)
        assert done.returncode == 2 and words in done.stderr, done.stderr
