"""Jobs that run as users of their own (--job-users): what a job may, what it cannot read, change or end, and that
checkpoints, forks and the removal of files work across users. The sandbox is off: here only the users count."""

import contextlib
import grp
import json
import os
import pathlib
import shutil
import signal
import stat
import subprocess
import sys
import tempfile

import pytest

from service_fixture import BIN, PATIENCE, Service, process_start_time, wait_until

FIRST, LAST = 70000, 70100
GROUP = "daemon"
PRELUDE = """
import json, os, signal, subprocess, sys, time
folder, resume = os.environ["TRAINYARD_CHECKPOINTS"], os.environ["TRAINYARD_RESUME"]
metrics = open(os.environ["TRAINYARD_METRICS"], "w", buffering=1)
def report(step):
    metrics.write(json.dumps({"step": step, "loss": 1}) + "\\n")
def save(step):
    path = folder + "/step-%d" % step
    os.mkdir(path + ".tmp")
    with open(path + ".tmp/state.json", "w") as f: f.write(json.dumps({"step": step}))
    os.rename(path + ".tmp", path)
def load():
    return json.load(open(resume + "/state.json"))["step"] if resume else 0
def attempt(what, *arguments):
    try:
        what(*arguments)
        print("did", what.__name__, *arguments)
    except OSError as e:
        print(type(e).__name__)
def wait():
    while True: time.sleep(0.1)
"""

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="starting processes as other users needs root")


@contextlib.contextmanager
def executor(place, name, users=f"{FIRST}-{LAST}", wrapper=()):
    directory, service = place
    process = subprocess.Popen(
        [*wrapper, "setpriv", f"--regid={GROUP}", "--clear-groups", BIN / "trainyard-executor", "--controller", service.address,
         "--directory", directory / name, "--slots", "4", "--checkpoint-root", directory / "checkpoints", "--data-root", directory,
         "--allow-programs", "--sandbox", "off", "--job-users", users],
        stdout=subprocess.PIPE, stderr=open(directory / f"{name}.log", "ab"), env=service.environment(), text=True, umask=0o007)
    try:
        assert process.stdout.readline().startswith("ready "), (directory / f"{name}.log").read_text()
        yield process
    finally:
        process.terminate()
        ended = process.wait(40 * PATIENCE)
        process.stdout.close()
    assert ended == 0


@contextlib.contextmanager
def place_make(text_file):
    """A folder that every user reaches, and a folder of checkpoints as deploy/README.md describes it."""
    reach = ["setpriv", f"--reuid={FIRST}", f"--regid={FIRST}", "--clear-groups", "test", "-x", BIN / "trainyard-program"]
    if subprocess.run(reach).returncode != 0:
        pytest.skip("the programs lie where other users do not reach")
    directory = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-job-users-"))
    directory.chmod(0o755)
    shutil.copy(text_file, directory / "text")
    (directory / "text").chmod(0o644)
    (directory / "checkpoints").mkdir()
    os.chown(directory / "checkpoints", 0, grp.getgrnam(GROUP).gr_gid)
    (directory / "checkpoints").chmod(0o2771)
    (directory / "service").mkdir()
    service = Service(directory / "service", executors=0, checkpoint_roots=[directory / "checkpoints"]).start()
    yield directory, service
    service.stop()
    shutil.rmtree(directory)


@pytest.fixture(scope="module")
def place(text_file):
    with place_make(text_file) as made:
        yield made


@pytest.fixture
def place_of_its_own(text_file):
    with place_make(text_file) as made:
        yield made


@pytest.fixture(scope="module")
def host(place):
    with executor(place, "host") as process:
        yield place[0], place[1], process


def submit(place, body, *arguments, **more):
    directory, service = place[:2]
    spec = {"name": "user", "program": {"command": [sys.executable, "-uc", PRELUDE + body]},
            "checkpoint": {"directory": f"file://{directory / 'checkpoints'}"}, **more}
    return service.submit(spec, *arguments)


def lines_of(service, job):
    return [line["text"] for line in service.json("logs", job)["lines"] if line["stream"] == "stdout"]


def uid_of(job):
    return FIRST + int(job) % (LAST - FIRST)


def processes_of(pid):
    return {name: value.split() for name, _, value in
            (line.partition(":") for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())}


@contextlib.contextmanager
def victim(host):
    """A job with a checkpoint, which runs until its end here: (job, folder of its attempt, scratch folder)."""
    _, service, _ = host
    job = submit(host, "save(1); report(1); print(os.environ['TRAINYARD_WORK'], flush=True); wait()")
    with service.watch(job) as watch:
        watch.until_event("checkpoint_committed")
    folder = pathlib.Path(service.json("checkpoints", job)["checkpoints"][0]["directory"]).parent
    scratch = wait_until(lambda: lines_of(service, job), 30, "the first line")[0]
    yield job, folder, pathlib.Path(scratch).parent
    assert json.loads((folder / "step-1/state.json").read_text()) == {"step": 1}
    service.cli("cancel", job)
    service.wait_end(job, "CANCELLED")


def test_each_job_is_a_user_of_its_own_without_groups_and_privileges(host):
    _, service, _ = host
    for _ in range(2):
        job = submit(host, "print(os.getresuid(), os.getresgid(), os.getgroups(), oct(os.umask(0)))\n"
                     "print(open('/proc/self/status').read()); print(os.path.expanduser('~') in os.environ['TRAINYARD_WORK'])")
        service.wait_end(job)
        lines = lines_of(service, job)
        uid = uid_of(job)
        assert lines[0].startswith(f"({uid}, {uid}, {uid}) ({uid}, {uid}, {uid}) [] 0o")
        assert int(lines[0].split()[-1], 8) & 0o007 == 0o007
        assert "NoNewPrivs:\t1" in lines and "CapEff:\t0000000000000000" in lines and lines[-1] == "True"


def test_a_job_cannot_reach_what_another_one_has(host):
    _, service, process = host
    with victim(host) as (other, folder, scratch):
        (rank, start), = service.worker_pids(other).values()
        job = submit(host, f"""
attempt(open, {str(folder / 'step-1/state.json')!r})
attempt(open, {str(folder / 'step-1/state.json')!r}, "w")
attempt(os.listdir, {str(folder)!r})
attempt(os.rename, {str(folder)!r}, {str(folder)!r} + "-gone")
attempt(os.mkdir, {str(folder.parent / 'attempt-99')!r})
attempt(os.listdir, {str(folder.parents[1])!r})
attempt(os.rename, {str(folder.parent)!r}, {str(folder.parent)!r} + "-gone")
attempt(os.listdir, {str(scratch)!r})
attempt(open, {str(scratch / 'metrics')!r}, "w")
attempt(os.kill, {rank}, 9)
attempt(os.kill, {process.pid}, 9)
attempt(open, "/proc/{rank}/environ")
attempt(open, "/proc/{process.pid}/environ")
attempt(open, "/proc/%d/mem" % os.getppid())
""")
        service.wait_end(job)
        assert lines_of(service, job) == ["PermissionError"] * 14
        assert process_start_time(rank) == start
        for path in [folder, *folder.rglob("*")]:
            mode = path.stat().st_mode
            assert mode & 0o007 == 0 and mode & 0o060 == 0o060, (path, oct(mode))
            assert path.stat().st_uid == uid_of(other) and path.stat().st_gid == grp.getgrnam(GROUP).gr_gid


def test_a_job_resumes_from_its_own_checkpoint_and_the_controller_removes_all(host):
    _, service, _ = host
    job = submit(host, "at = load(); print(at)\nfor step in range(at + 1, at + 4):\n    save(step); report(step)\n"
                 "if at == 0:\n    wait()", checkpoint={"directory": f"file://{host[0] / 'checkpoints'}", "keep_last": 1})
    with service.watch(job) as watch:
        watch.until(lambda u: u.get("event", {}).get("kind") == "checkpoint_committed" and u["event"].get("step") == "3"
                    or "step 3" in u.get("event", {}).get("message", ""), 60, "the checkpoint of step 3")
    folder = pathlib.Path(service.json("checkpoints", job)["checkpoints"][0]["directory"]).parents[1]
    (rank, _), = service.worker_pids(job).values()
    os.kill(rank, signal.SIGKILL)
    service.wait_end(job)
    assert lines_of(service, job) == ["0", "3"]
    service.cli("delete", job)
    wait_until(lambda: not folder.exists(), 60, "the removal of the job's checkpoints")


def test_a_fork_reads_the_checkpoint_of_its_origin(host):
    directory, service, _ = host
    with victim(host) as (origin, folder, _):
        spec = directory / "fork.json"
        spec.write_text(json.dumps({"name": "fork", "program": {"command": [
            sys.executable, "-uc", PRELUDE + "print(load(), resume); save(2); report(2)"]},
            "checkpoint": {"directory": f"file://{directory / 'checkpoints'}"}}))
        fork = service.cli("submit", "--fork", origin, spec).stdout.strip()
        service.wait_end(fork)
        assert uid_of(fork) != uid_of(origin)
        assert lines_of(service, fork) == [f"1 {folder / 'step-1'}"]


def test_models_run_as_users_of_their_own_and_begin_with_weights_of_other_jobs(host, tiny):
    directory, service, _ = host
    spec = tiny(data__text={"files": [f"file://{directory / 'text'}"], "validation_fraction": 0.1}, data=2, steps=20,
                checkpoint__directory=f"file://{directory / 'checkpoints'}")
    first = service.submit(spec)
    assert service.wait_end(first)["weights_sha256"]
    row = service.json("checkpoints", first)["checkpoints"][-1]
    path = pathlib.Path(row["directory"])
    for file in path.iterdir():
        assert file.stat().st_uid == uid_of(first) and stat.S_IMODE(file.stat().st_mode) & 0o006 == 0
    later = directory / "later.json"
    later.write_text(json.dumps({**spec, "train": {**spec["train"], "steps": 30}}))
    fork = service.cli("submit", "--fork", first, later).stdout.strip()
    service.wait_end(fork)
    assert uid_of(fork) != uid_of(first)


def test_two_jobs_of_one_user_do_not_run_on_a_host_at_a_time(place_of_its_own):
    place = place_of_its_own
    _, service = place
    with executor(place, "narrow", f"{FIRST}-{FIRST + 1}"):
        one = submit(place, "report(1); wait()")
        with service.watch(one) as watch:
            watch.until_step(1)
        two = submit(place, "print('never')", retry={"max_restarts": 0})
        assert f"job {one}, which runs on this host, has the same user {FIRST}" in service.wait_end(two, "FAILED")["reason"]
        service.cli("cancel", one)
        service.wait_end(one, "CANCELLED")


def test_a_setuid_program_gets_no_privilege(host):
    directory, service, _ = host
    shutil.copy("/usr/bin/id", directory / "id")
    (directory / "id").chmod(0o4755)
    job = submit(host, f"subprocess.run([{str(directory / 'id')!r}, '-u'])")
    service.wait_end(job)
    assert lines_of(service, job) == [str(uid_of(job))]


def test_the_stacks_of_a_hang_name_what_each_thread_waits_for(host):
    _, service, _ = host
    yama = pathlib.Path("/proc/sys/kernel/yama/ptrace_scope")
    if not os.path.exists("/proc/self/syscall") or yama.exists() and int(yama.read_text()) > 1:
        pytest.skip("this kernel does not show users what their processes wait for")
    job = submit(host, "", retry={"max_restarts": 0}, program={"command": ["sleep", "7000"], "progress": {"timeout": 5}})
    service.wait_end(job, "FAILED")
    lines = [line["text"] for line in service.json("logs", job)["lines"] if line["stream"] == "stacks"]
    assert any(", system call " in line for line in lines if line.startswith("  thread ")), lines


def test_a_rank_can_neither_leave_nor_change_its_control_group(host):
    directory, service, _ = host
    if "limited" in (directory / "host.log").read_text():
        pytest.skip("this host gives no control groups")
    job = submit(host, """
groups = [line.strip().split(":", 2) for line in open("/proc/self/cgroup")]
mounts = [line.split() for line in open("/proc/self/mountinfo") if " - cgroup" in line]
done = 0
for path, _, files in os.walk("/sys/fs/cgroup"):
    for name in ("cgroup.procs", "tasks", "pids.max", "memory.max", "memory.limit_in_bytes"):
        if name in files:
            try:
                open(os.path.join(path, name), "w").write(str(os.getpid()))
                print("wrote", path, name)
            except OSError:
                done += 1
print(done > 0, open("/proc/self/cgroup").read().count("job-%s-attempt-1-rank-0" % os.environ["TRAINYARD_JOB"]) > 0)
""")
    service.wait_end(job)
    assert lines_of(service, job) == ["True True"]


def test_a_host_without_control_groups_says_so(place):
    without = ["unshare", "--mount", "sh", "-c", 'umount -R /sys/fs/cgroup 2>/dev/null; exec "$@"', "sh"]
    if subprocess.run([*without, "true"], stderr=subprocess.DEVNULL).returncode != 0:
        pytest.skip("this system makes no namespace of mounts")
    with executor(place, "bare", wrapper=without):
        log = (place[0] / "bare.log").read_text()
    for lacks in ("the memory of ranks is not limited", "the number of a rank's processes is not limited"):
        assert lacks in log, log


@pytest.mark.parametrize("users, words", [("0-10", "from 1 to"), ("10-10", "FIRST-LAST"), ("x", "FIRST-LAST"), ("5-", "FIRST-LAST"),
                                          ("1-2000000", "FIRST-LAST"), ("10-20 --worker-user nobody", "exclude each other")])
def test_wrong_ranges_are_refused(tmp_path, users, words):
    done = subprocess.run([BIN / "trainyard-executor", "--controller", "unix:/none", "--directory", tmp_path, "--checkpoint-root",
                           tmp_path, "--job-users", *users.split()], capture_output=True, text=True, timeout=60 * PATIENCE)
    assert done.returncode == 2 and words in done.stderr, done.stderr
