"""PostgreSQL's primary is killed with -9 and its synchronous standby is promoted: the same controller goes on over the
connection string that names both servers. No acknowledged call is lost, a job that trains meanwhile stays in its first
attempt, stores the loss of each step once, and ends with the same weights."""

import contextlib
import json
import os
import pathlib
import pwd
import re
import signal
import subprocess
import tempfile
import threading

import pytest

from service_fixture import BIN, DATA_ROOTS, PATIENCE, Database, descendants, process_start_time, remove_tree
from service_fixture import sanitizer_environment, wait_until

SLOW = {"layers": 4, "width": 64}  # some milliseconds a step


def database_user():
    """PostgreSQL refuses to run as root."""
    return {"user": "postgres", "group": "postgres"} if os.geteuid() == 0 else {}


class Server:
    """A PostgreSQL server with a socket in a folder of its own."""

    def __init__(self, folder, name):
        self.name, self.socket, self.data = name, folder / name, folder / name / "data"
        self.process = None
        self.socket.mkdir(mode=0o711)
        if os.geteuid() == 0:
            account = pwd.getpwnam("postgres")
            os.chown(self.socket, account.pw_uid, account.pw_gid)

    def run(self, program, *arguments):
        return subprocess.run([Database.program(program), *map(str, arguments)], check=True, text=True, cwd="/",
                              capture_output=True, timeout=120 * PATIENCE, **database_user()).stdout.strip()

    def make(self):
        self.run("initdb", "-D", self.data, "-U", "trainyard", "-A", "trust", "-E", "UTF8", "--locale=C")

    def copy(self, primary):
        self.run("pg_basebackup", "-h", primary.socket, "-U", "trainyard", "-D", self.data, "-X", "stream", "-R",
                 "-c", "fast")

    def start(self):
        """A standby takes its name in `synchronous_standby_names` from cluster_name."""
        with open(self.socket.with_suffix(".log"), "ab") as log:
            self.process = subprocess.Popen(
                [Database.program("postgres"), "-D", self.data, "-c", "listen_addresses=", "-c",
                 f"unix_socket_directories={self.socket}", "-c", f"cluster_name={self.name}"],
                stdout=log, stderr=log, cwd="/", **database_user())
        wait_until(lambda: self.answers("SELECT 1"), 60, f"server {self.name} answers")

    def sql(self, text):
        return self.run("psql", "-XAtq", "-v", "ON_ERROR_STOP=1", "-h", self.socket, "-U", "trainyard",
                        "-d", "postgres", "-c", text)

    def answers(self, text):
        with contextlib.suppress(subprocess.CalledProcessError):
            return self.sql(text)

    def kill(self):
        """All of its processes at once, as the death of its host does."""
        ended = {pid: process_start_time(pid) for pid in [self.process.pid, *descendants(self.process.pid)]}
        for pid in ended:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()
        wait_until(lambda: all(process_start_time(pid) != start for pid, start in ended.items()), 30, "its end")

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.send_signal(signal.SIGQUIT)
            self.process.wait(60 * PATIENCE)


class Pair:
    """A primary with a synchronous standby, a controller that knows both, and an executor of two slots."""

    def __init__(self, folder, data_root):
        self.folder = folder
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("TRAINYARD_")}
        self.environment.update(sanitizer_environment(folder / "sanitizer"))
        self.primary, self.standby = Server(folder, "a"), Server(folder, "b")
        self.conninfo = (f"host={self.primary.socket},{self.standby.socket} user=trainyard dbname=postgres "
                         "target_session_attrs=read-write")
        self.address = f"unix:{folder}/controller.sock"
        self.environment["TRAINYARD_CONTROLLER"] = self.address
        self.data_root = data_root
        self.processes = []

    def start(self):
        self.primary.make()
        self.primary.start()
        self.standby.copy(self.primary)
        self.standby.start()
        self.primary.sql("ALTER SYSTEM SET synchronous_standby_names = 'b'")
        self.primary.sql("SELECT pg_reload_conf()")
        wait_until(lambda: self.primary.sql("SELECT sync_state FROM pg_stat_replication") == "sync", 60,
                   "a synchronous standby")
        subprocess.run([BIN / "trainyard-controller", "migrate", "--database", self.conninfo], check=True,
                       stdout=subprocess.DEVNULL, env=self.environment, timeout=120 * PATIENCE)
        (self.folder / "checkpoints").mkdir()
        self.controller = self.spawn("controller", "trainyard-controller", "--database", self.conninfo, "--checkpoints",
                                     self.folder / "checkpoints", "--listen", self.address)
        wait_until(lambda: re.search("^ready ", self.log("controller"), re.M), 60, "a controller that leads")
        roots = [word for root in (*DATA_ROOTS, self.data_root) for word in ("--data-root", root)]
        self.spawn("executor", "trainyard-executor", "--controller", self.address, "--directory", self.folder / "host",
                   "--slots", "2", "--checkpoint-root", self.folder / "checkpoints", *roots)

    def spawn(self, name, program, *arguments):
        with open(self.folder / f"{name}.log", "ab") as log:
            process = subprocess.Popen([BIN / program, *map(str, arguments)], stdout=log, stderr=log,
                                       env=self.environment)
        self.processes.append(process)
        return process

    def log(self, name):
        return (self.folder / f"{name}.log").read_text(errors="replace")

    def cli(self, *arguments):
        done = subprocess.run([BIN / "trainyard", *map(str, arguments)], text=True, capture_output=True,
                              timeout=300 * PATIENCE, env=self.environment)
        assert done.returncode == 0, (arguments, done.stdout, done.stderr, self.log("controller")[-3000:])
        return done.stdout

    def submit(self, spec):
        path = self.folder / f"{spec['name']}.json"
        path.write_text(json.dumps(spec))
        return self.cli("submit", path, "--wait-for-hosts").strip()

    def get(self, job):
        return json.loads(self.cli("get", job, "-o", "json"))

    def reaches(self, job, step):
        wait_until(lambda: int(self.get(job).get("step", 0)) >= step, 120, f"step {step} of job {job}")

    def wait_end(self, job):
        self.cli("watch", job)
        return self.get(job)

    def stop(self):
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
            process.wait(60 * PATIENCE)
        self.primary.stop()
        self.standby.stop()


class Submits(threading.Thread):
    """Submits one job after another until it is stopped. `acknowledged` has their ids and names."""

    def __init__(self, pair, tiny):
        super().__init__()
        self.pair, self.tiny, self.enough = pair, tiny, threading.Event()
        self.acknowledged, self.refused = {}, []

    def run(self):
        number = 0
        while not self.enough.is_set():
            number += 1
            name = f"call-{number}"
            try:
                self.acknowledged[self.pair.submit(self.tiny(steps=2, every=0, name=name))] = name
            except AssertionError as error:
                self.refused.append(str(error))

    def stop(self):
        self.enough.set()
        self.join()


@pytest.fixture
def pair():
    folder = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-standby-"))
    folder.chmod(0o711)
    made = Pair(folder, tempfile.gettempdir())
    try:
        made.start()
        yield made
    finally:
        made.stop()
    reports = sorted(folder.glob("sanitizer.*"))
    assert not reports, reports[0].read_text(errors="replace")[:4000]
    remove_tree(folder)


@pytest.mark.waits
def test_a_promoted_synchronous_standby_has_everything_that_was_acknowledged(pair, tiny):
    steps = 4000
    spec = tiny(steps=steps, data=2, every=100, **SLOW)
    same = pair.wait_end(pair.submit(spec))["weights_sha256"]
    job = pair.submit(spec)
    pair.reaches(job, 120)
    submits = Submits(pair, tiny)
    submits.start()
    try:
        wait_until(lambda: len(submits.acknowledged) >= 3, 60, "acknowledged calls")
        running = pair.get(job)
        assert running["state"] == "RUNNING" and running["attempt"] == 1, running
        pair.primary.kill()
        before = len(submits.acknowledged)
        pair.standby.run("pg_ctl", "promote", "-D", pair.standby.data)
        wait_until(lambda: len(submits.acknowledged) >= before + 3, 120, "calls that the new primary acknowledged")
    finally:
        submits.stop()
    pair.reaches(job, int(running["step"]) + 1)
    ended = pair.wait_end(job)
    assert pair.controller.poll() is None, pair.log("controller")[-3000:]
    assert ended["state"] == "SUCCEEDED" and ended["attempt"] == 1, ended
    assert ended["weights_sha256"] == same and int(ended.get("records_lost", 0)) == 0, ended
    series = json.loads(pair.cli("metrics", job, "loss", "-o", "json"))["series"]
    assert [int(step) for step in series[0]["step"]] == list(range(1, steps + 1)), "the loss of each step once"
    stored = {id: pair.get(id)["spec"]["name"] for id in submits.acknowledged}
    assert stored == submits.acknowledged, "every acknowledged call is there"
    log = pair.log("controller")
    assert " leadership_lost " not in log and " database_set_back " not in log, log
    assert not submits.refused
