"""Two real controllers on one database, kill -9 of the leader: agents and commands that know both addresses find the other
one, no acknowledged call is lost, and a job that trains meanwhile notices nothing.

TRAINYARD_KILLS sets the number of kills (3)."""

import json
import os
import re
import signal
import subprocess
import time

import pytest

from service_fixture import BIN, PATIENCE, Database, Service, wait_until

KILLS = int(os.environ.get("TRAINYARD_KILLS", 3))


class Controllers:
    """Two controllers, and an executor of two slots that knows the addresses of both."""

    def __init__(self, directory, up, data_root):
        self.directory, self.environment = directory, up.environment()
        self.database = Database(up, "leaders")
        self.addresses = [f"unix:{directory}/{name}.sock" for name in "ab"]
        self.processes = [None, None]
        for i in range(2):
            self.start(i)
        (directory / "host").mkdir()
        self.executor = subprocess.Popen(
            [BIN / "trainyard-executor", "--controller", ",".join(self.addresses), "--directory", directory / "host",
             "--slots", "2", "--checkpoint-root", directory / "checkpoints", "--data-root", data_root],
            env=self.environment, stdout=subprocess.DEVNULL, stderr=open(directory / "executor.log", "ab"))

    def start(self, i):
        """A controller prints `ready` when it leads, and logs `standing_by` while another one does."""
        path = self.directory / f"{i}.log"
        begun = path.stat().st_size if path.exists() else 0
        with open(path, "ab") as log:
            self.processes[i] = process = subprocess.Popen(
                [BIN / "trainyard-controller", "--database", self.database.conninfo, "--checkpoints",
                 self.directory / "checkpoints", "--listen", self.addresses[i]],
                env=self.environment, stdout=log, stderr=log)

        def serves():
            text = path.read_bytes()[begun:].decode(errors="replace")
            assert process.poll() is None, text
            return re.search("^ready |standing_by", text, re.M)
        wait_until(serves, 60, f"controller {i} leads or stands by")

    def cli(self, *arguments, at=None, status=0):
        done = subprocess.run([BIN / "trainyard", *map(str, arguments)], text=True, capture_output=True,
                              timeout=120 * PATIENCE, env=dict(self.environment, TRAINYARD_CONTROLLER=at or ",".join(self.addresses)))
        assert status is None or done.returncode == status, (arguments, done.returncode, done.stdout, done.stderr)
        return done

    def submit(self, spec):
        path = self.directory / "spec.json"
        path.write_text(json.dumps(spec))
        return self.cli("submit", path, "--wait-for-hosts").stdout.strip()

    def get(self, job):
        return json.loads(self.cli("get", job, "-o", "json").stdout)

    def leads(self, i):
        done = self.cli("status", "-o", "json", at=self.addresses[i], status=None)
        return done.returncode == 0 and json.loads(done.stdout).get("leads", False)

    def leader(self):
        leading = []
        wait_until(lambda: leading.extend(i for i in range(2) if self.leads(i)) or leading, 60, "a controller leads")
        return leading[0]

    def stop(self):
        for process in [self.executor, *self.processes]:
            process.send_signal(signal.SIGTERM)
        for process in [self.executor, *self.processes]:
            process.wait(60 * PATIENCE)


@pytest.fixture
def controllers(tmp_path, text_file):
    up = Service(tmp_path / "up", executors=0)
    up.directory.mkdir()
    up.start()
    (tmp_path / "two" / "checkpoints").mkdir(parents=True)
    both = Controllers(tmp_path / "two", up, text_file.parent)
    yield both
    both.stop()
    up.stop()


def test_a_command_that_knows_only_the_standby_waits_and_says_that_it_does_not_lead(controllers):
    standby = controllers.addresses[1 - controllers.leader()]
    waiting = subprocess.Popen([BIN / "trainyard", "cancel", "1"], stderr=subprocess.PIPE, text=True,
                               env=dict(controllers.environment, TRAINYARD_CONTROLLER=standby))
    line = waiting.stderr.readline()
    waiting.kill()
    waiting.wait()
    waiting.stderr.close()
    assert "does not lead" in line and "waiting for it" in line, line


def test_the_leader_is_killed_again_and_again_and_nothing_is_lost(controllers, tiny):
    untouched = controllers.submit(tiny(steps=200, data=2))
    controllers.cli("watch", untouched)
    same = controllers.get(untouched)["weights_sha256"]
    job = controllers.submit(tiny(steps=1_000_000, data=2, every=0))
    wait_until(lambda: controllers.get(job)["state"] == "RUNNING", 60, "the job runs")
    acknowledged, away_s = [], []
    for kill in range(KILLS):
        leader = controllers.leader()
        controllers.processes[leader].kill()
        begun = time.monotonic()
        acknowledged.append(controllers.submit(tiny(steps=5, name=f"after-{kill}")))
        away_s.append(time.monotonic() - begun)
        assert controllers.leader() == 1 - leader
        controllers.processes[leader].wait()
        controllers.start(leader)
    print(f"{KILLS} kills: the next submit was accepted after {sorted(away_s)[len(away_s) // 2]:.2f} s (median), "
          f"{max(away_s):.2f} s at most")
    running = controllers.get(job)
    assert running["state"] == "RUNNING" and running["attempt"] == 1, "the job went on"
    controllers.cli("cancel", job)
    names = {controllers.get(each)["spec"]["name"] for each in acknowledged}
    assert names == {f"after-{kill}" for kill in range(KILLS)}
    for each in acknowledged:
        controllers.cli("watch", each)
        assert controllers.get(each)["state"] == "SUCCEEDED"
    again = controllers.submit(tiny(steps=200, data=2))
    controllers.cli("watch", again)
    assert controllers.get(again)["weights_sha256"] == same
