"""A real service for the tests that use one: `trainyard up` in a directory of its own, stopped and looked after at the end.

Nothing sleeps to give time: a test waits for an event of the job's own stream, or for a process to be gone.
"""

import contextlib
import json
import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
BIN = pathlib.Path(os.environ.get("TRAINYARD_BIN", ROOT / "build" / "bin"))
SANITIZED = BIN.parent.name in ("asan", "tsan")
# A wait that ends by its event costs nothing more. Five seconds are half a minute: a disk may stand still for twenty, and
# the processors may have ten times what they can do; sanitizers make everything slower still.
PATIENCE = 12.0 if SANITIZED else 6.0
# Where tests have their data: their own temporary folders, and what is recorded beside them.
DATA_ROOTS = (tempfile.gettempdir(), ROOT)
# What the executors of the tests enforce. The tests' programs write to the tests' folders.
SANDBOX = os.environ.get("TEST_SANDBOX", "available")


def sanitizer_environment(reports):
    """Where a sanitized program writes what it finds: files `reports`.PID, which the end of a test looks for."""
    return {
        "ASAN_OPTIONS": f"detect_leaks=1:log_path={reports}",
        "LSAN_OPTIONS": f"suppressions={ROOT}/tests/lsan.supp:print_suppressions=0",
        "UBSAN_OPTIONS": f"print_stacktrace=1:log_path={reports}",
        "TSAN_OPTIONS": f"suppressions={ROOT}/tests/tsan.supp:history_size=7:exitcode=66:atexit_sleep_ms=10:log_path={reports}",
    }


# ---- processes, read from /proc ----

def process_start_time(pid):
    """Clock ticks since boot at which pid began: tells a reused pid. None when there is no such process."""
    try:
        stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat[stat.rindex(")") + 2:].split()
    return None if fields[0] == "Z" else int(fields[19])


def descendants(pid):
    """{pid: command line} of every living process below pid."""
    children = {}
    for entry in os.listdir("/proc"):
        if not entry.isdigit():
            continue
        try:
            stat = pathlib.Path(f"/proc/{entry}/stat").read_text()
            line = pathlib.Path(f"/proc/{entry}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except (FileNotFoundError, ProcessLookupError):
            continue
        fields = stat[stat.rindex(")") + 2:].split()
        if fields[0] != "Z":
            children.setdefault(int(fields[1]), []).append((int(entry), line))
    found, todo = {}, [pid]
    while todo:
        for child, line in children.get(todo.pop(), []):
            found[child] = line
            todo.append(child)
    return found


def wait_until(condition, timeout_s, what):
    """Polls a condition about the outside world that sends no event (a process, a file)."""
    end = time.monotonic() + timeout_s * PATIENCE
    while True:
        value = condition()
        if value:
            return value
        assert time.monotonic() < end, f"not within {timeout_s * PATIENCE:.0f} s: {what}"
        select.select([], [], [], 0.02)


class Database:
    """One of its own, migrated, in the cluster of a service, for controllers that a test starts itself."""

    def __init__(self, service, name):
        line = next(line for line in descendants(service.up.pid).values() if "trainyard-controller --database" in line)
        self.cluster = re.search("host=[^ ]+ user=trainyard", line)[0]
        self.conninfo = f"{self.cluster} dbname={name}"
        self.sql(f"CREATE DATABASE {name}", "postgres")
        subprocess.run([BIN / "trainyard-controller", "migrate", "--database", self.conninfo], check=True,
                       stdout=subprocess.DEVNULL, env=service.environment(), timeout=60 * PATIENCE)

    @staticmethod
    def program(name):
        return pathlib.Path(subprocess.check_output(["pg_config", "--bindir"], text=True).strip()) / name

    def sql(self, text, name=None):
        conninfo = f"{self.cluster} dbname={name}" if name else self.conninfo
        subprocess.run([self.program("psql"), "-XAtq", "-v", "ON_ERROR_STOP=1", "-d", conninfo, "-c", text], check=True,
                       timeout=60 * PATIENCE)


class Watch:
    """`trainyard watch JOB -o json`: one update per line, as the service sends it."""

    def __init__(self, service, job, after_event=0):
        self.seen, self.read = [], b""
        self.process = subprocess.Popen(
            [BIN / "trainyard", "watch", job, "-o", "json"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env=service.environment(), bufsize=0)

    def line(self, end):
        """The next line before this time; "" at the end of the stream, None when the time has come."""
        while b"\n" not in self.read:
            ready, _, _ = select.select([self.process.stdout], [], [], max(0, end - time.monotonic()))
            if not ready:
                return None
            some = self.process.stdout.read(1 << 16)
            if not some:
                return ""
            self.read += some
        line, self.read = self.read.split(b"\n", 1)
        return line.decode()

    def until(self, condition, timeout_s, what):
        """Reads updates until condition(update) holds, and returns that update."""
        end = time.monotonic() + timeout_s * PATIENCE
        while True:
            line = self.line(end)
            assert line is not None, f"not within {timeout_s * PATIENCE:.0f} s: {what}; seen: {self.seen[-5:]}"
            assert line, f"the watch ended before: {what}; seen: {self.seen[-5:]}"
            update = json.loads(line)
            self.seen.append(update)
            if condition(update):
                return update

    def until_step(self, step, timeout_s=60):
        return self.until(lambda u: int(u.get("progress", {}).get("step", 0)) >= step, timeout_s, f"step {step}")

    def until_event(self, kind, timeout_s=30, **fields):
        def matches(update):
            event = update.get("event")
            return event and event["kind"] == kind and all(event.get(k) == v for k, v in fields.items())
        return self.until(matches, timeout_s, f"event {kind} {fields}")["event"]

    def until_state(self, state, timeout_s=60):
        return self.until(lambda u: u.get("event", {}).get("state") == state, timeout_s, f"state {state}")["event"]

    def close(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


class Service:
    def __init__(self, directory, executors=1, slots=2, roots=DATA_ROOTS, checkpoint_roots=(), options=()):
        self.directory = pathlib.Path(directory)
        self.files = self.directory.with_suffix(".files")  # of programs: in a sandbox they make no files in `directory`
        self.arguments = ["--executors", str(executors), "--slots", str(slots)]
        self.arguments += [word for root in roots for word in ("--data-root", str(root))]
        if "--sandbox" not in options:  # `up` has it off by default; executors of other hosts have it
            self.arguments += ["--sandbox", SANDBOX, "--writable-root", tempfile.gettempdir()]
        self.arguments += options
        if BIN.parent.name == "tsan":  # libgomp's barriers are not instrumented: each rank on one thread
            self.arguments += ["--cores", str(max(1, executors))]
        self.arguments += [word for root in checkpoint_roots for word in ("--checkpoint-root", str(root))]
        self.up = None
        self.address = None
        self.ever_seen = {}
        self.reports = self.directory.with_suffix(".sanitizer")

    def environment(self):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("TRAINYARD_")}
        environment.update(sanitizer_environment(self.reports))
        environment["TRAINYARD_PEER_PATIENCE_S"] = "600"  # a busy machine changes nothing about who reads what
        if self.address:
            environment["TRAINYARD_CONTROLLER"] = self.address
        return environment

    def start(self):
        self.files.mkdir(exist_ok=True)
        self.log = open(self.directory.with_suffix(".up.log"), "ab")
        self.up = subprocess.Popen(
            [BIN / "trainyard", "up", "--dir", self.directory, *self.arguments],
            stdout=subprocess.PIPE, stderr=self.log, env=self.environment(), text=True, start_new_session=True)
        ready, _, _ = select.select([self.up.stdout], [], [], 60 * PATIENCE)
        line = self.up.stdout.readline() if ready else ""
        assert line.startswith("ready "), f"`trainyard up` said {line!r}; see {self.log.name}:\n{self.tail()}"
        self.address = line.split(None, 1)[1].strip()
        return self

    def tail(self):
        return pathlib.Path(self.log.name).read_text(errors="replace")[-3000:]

    def stop(self):
        if not self.up or self.up.poll() is not None:
            return
        self.note_processes()
        self.up.send_signal(signal.SIGINT)
        try:
            self.up.wait(40 * PATIENCE)
        except subprocess.TimeoutExpired:
            for pid in [*descendants(self.up.pid), self.up.pid]:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            raise AssertionError(f"`trainyard up` did not stop:\n{self.tail()}")
        self.assert_nothing_left()

    def note_processes(self):
        for pid in descendants(self.up.pid):
            self.ever_seen[pid] = process_start_time(pid)

    def assert_nothing_left(self):
        left = {p: s for p, s in self.ever_seen.items() if s is not None and process_start_time(p) == s}
        assert not left, f"processes left behind: {left}"
        found = sorted(self.reports.parent.glob(self.reports.name + ".*"))
        assert not found, f"{len(found)} sanitizer reports; the first:\n{found[0].read_text(errors='replace')[:4000]}"

    def cli(self, *arguments, status=0, input=None):
        done = subprocess.run([BIN / "trainyard", *map(str, arguments)], env=self.environment(), text=True,
                              input=input, capture_output=True, timeout=120 * PATIENCE)
        assert status is None or done.returncode == status, \
            f"trainyard {arguments}: exit {done.returncode}, not {status}\n{done.stdout}\n{done.stderr}"
        return done

    def json(self, *arguments, **more):
        """Waits for a controller that starts again longer than the client does: on a busy machine a start takes seconds."""
        end = time.monotonic() + 10 * PATIENCE
        while "status" not in more and time.monotonic() < end:
            done = self.cli(*arguments, "-o", "json", status=None, **more)
            if done.returncode == 0:
                return json.loads(done.stdout)
            if "cannot be reached" not in done.stderr:
                break
        return json.loads(self.cli(*arguments, "-o", "json", **more).stdout)

    def submit(self, spec, *arguments):
        path = self.directory / "submitted.json"
        path.write_text(json.dumps(spec))
        return self.cli("submit", path, "--wait-for-hosts", *arguments).stdout.strip()

    @contextlib.contextmanager
    def watch(self, job):
        watch = Watch(self, job)
        try:
            yield watch
        finally:
            watch.close()

    def wait_end(self, job, state="SUCCEEDED", timeout_s=120):
        """Waits for a controller that starts again longer than `watch` does before its first update, as `json` does."""
        end = time.monotonic() + timeout_s * PATIENCE
        while True:
            done = subprocess.run([BIN / "trainyard", "watch", job], env=self.environment(), text=True,
                                  capture_output=True, timeout=timeout_s * PATIENCE)
            if done.returncode != 5 or time.monotonic() > end:
                break
        ended = self.json("get", job)
        assert ended["state"] == state, f"{ended['state']}: {ended.get('reason')}\n{done.stderr[-2000:]}\n{self.tail()}"
        return ended

    def end_of_killed(self, spec, rank):
        """How a job ended whose rank was killed behind its first checkpoint. A job may be done before one is written,
        where the disk stalls, or as it is killed: then another is tried."""
        for _ in range(5):
            job = self.submit(spec)
            with self.watch(job) as watch, contextlib.suppress(ProcessLookupError):
                watch.until_event("checkpoint_committed")
                os.kill(self.worker_pids(job)[rank][0], signal.SIGKILL)
            ended = self.wait_end(job)
            if ended["attempt"] > 1:
                return ended
        raise AssertionError("five jobs were done before a rank of theirs was killed")

    def series(self, job, name, rank=0):
        """One series as QueryMetrics tells it: folded into buckets when it has more than 10,000 points."""
        series = [s for s in self.json("metrics", job, name)["series"] if int(s.get("rank", 0)) == rank]
        assert len(series) == 1, series
        return series[0]

    def metric(self, job, name, rank=0):
        """{step: value} of a series short enough to come point by point."""
        series = self.series(job, name, rank)
        assert len(series["step"]) == int(series["points"]), "folded into buckets"
        return dict(zip(map(int, series["step"]), series["mean"]))

    def pid_of(self, program, index=0):
        """The index-th living child of `up` that runs the program."""
        self.note_processes()
        found = sorted(p for p, line in descendants(self.up.pid).items()
                       if os.path.basename(line.split(" ")[0]) == program)
        assert len(found) > index, f"no {program} below up: {descendants(self.up.pid)}"
        return found[index]

    def postmaster_pid(self):
        pids = [int(p.read_text().split()[0]) for p in self.directory.glob("**/postmaster.pid")]
        if not pids:  # as root the cluster stands elsewhere
            pids = [p for p, line in descendants(self.up.pid).items() if "postgres" in line and " -D " in line]
        assert pids, descendants(self.up.pid)
        return pids[0]

    def worker_pids(self, job):
        """{rank: (pid, start time)} of the last attempt, once the service knows all of them or the attempt has ended."""
        def known():
            attempt = self.json("get", job)["attempts"][-1]
            pids = {int(p.get("rank", 0)): (int(p["pid"]), int(p["pid_start_time"])) for p in attempt["placements"]}
            return attempt.get("end_time") or all(pid > 0 for pid, _ in pids.values()), pids
        return wait_until(lambda: (found := known())[0] and found, 30, "the pids of all ranks")[1]


def remove_tree(path):
    """With the folders that are read-only, such as Python environments."""
    subprocess.run(["chmod", "-R", "u+w", path], check=True)
    shutil.rmtree(path)


def make_service(executors, slots, options=()):
    """Of a fixture: a service in a folder of its own, stopped and removed when the fixture ends."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-test-"))
    service = Service(directory / "service", executors, slots, options=options)
    service.directory.mkdir()
    try:
        yield service.start()
        service.stop()
    except BaseException:
        with contextlib.suppress(Exception):
            service.stop()
        raise
    with contextlib.suppress(OSError, subprocess.CalledProcessError):
        remove_tree(directory)
