"""A controller of its own with --http, and executors for it, in a database of another service's cluster."""

import contextlib
import json
import os
import pathlib
import re
import select
import signal
import subprocess
import tempfile
import urllib.request

from service_fixture import BIN, PATIENCE, Database

DEVICES = pathlib.Path(__file__).resolve().parent / "devices"


class Monitored:
    def __init__(self, service, directory, database, options=(), http="127.0.0.1:0"):
        """database: the name of a new one, or a Database."""
        self.service, self.directory = service, pathlib.Path(directory)
        self.database = database if isinstance(database, Database) else Database(service, database)
        self.options, self.http_address = list(options), http
        self.socket = tempfile.TemporaryDirectory(prefix="c.")  # short: the path of a socket is limited to 107 bytes
        self.address = f"unix:{self.socket.name}/controller.sock"
        self.process, self.executors = None, []
        (self.directory / "checkpoints").mkdir()

    @classmethod
    def beside(cls, other, directory):
        """Another controller of the same database."""
        directory.mkdir()
        return cls(other.service, directory, other.database, other.options)

    def launch(self):
        self.process = subprocess.Popen(
            [BIN / "trainyard-controller", "--database", self.database.conninfo, "--checkpoints",
             self.directory / "checkpoints", "--listen", self.address, "--http", self.http_address, *map(str, self.options)],
            stdout=subprocess.PIPE, stderr=open(self.directory / "controller.log", "ab"), text=True,
            env=self.service.environment())
        return self

    def start(self):
        self.launch()
        return self.await_ready()

    def await_ready(self):
        ready, _, _ = select.select([self.process.stdout], [], [], 60 * PATIENCE)
        assert ready and self.process.stdout.readline().startswith("ready "), self.log()
        self.http = re.findall(r"http_listens address=(\S+)", self.log())[-1]
        return self

    def log(self):
        return (self.directory / "controller.log").read_text()

    def kill(self):
        self.process.kill()
        self.process.wait(60 * PATIENCE)

    @staticmethod
    def driver(folder):
        """Builds a stand-in for NVIDIA's library, with two devices."""
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", folder / "libnvidia-ml.so.1", DEVICES / "nvml.c"], check=True)
        return folder

    def executor(self, name, slots=2, driver=None, options=()):
        """driver: as above; the devices are those of host `name`. Its worker is a stand-in too, and can train nothing: begin
        jobs for other executors before."""
        environment = self.environment()
        directory = self.directory / name
        if driver:
            script = self.directory / f"{name}.script"
            script.write_text("")
            environment |= {"FAKE_NVML": str(script), "FAKE_NVML_HOST": f"{name}-{os.getpid()}", "LD_LIBRARY_PATH": str(driver)}
        process = subprocess.Popen(
            [BIN / "trainyard-executor", "--controller", self.address, "--directory", directory, "--slots", str(slots),
             "--data-root", tempfile.gettempdir(), "--checkpoint-root", self.directory / "checkpoints", "--worker",
             DEVICES / "worker.py" if driver else BIN / "trainyard-worker", *options],
            env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.executors.append(process)
        return process.stdout.readline().split()[1]

    def environment(self):
        return {**self.service.environment(), "TRAINYARD_CONTROLLER": self.address}

    def cli(self, *arguments, status=0, **more):
        done = subprocess.run([BIN / "trainyard", *map(str, arguments)], text=True, capture_output=True,
                              timeout=120 * PATIENCE, env={**self.environment(), **more})
        assert status is None or done.returncode == status, f"trainyard {arguments}: exit {done.returncode}\n{done.stderr}"
        return done

    def submit(self, spec, *arguments):
        path = self.directory / "submitted.json"
        path.write_text(json.dumps(spec))
        return self.cli("submit", path, "--wait-for-hosts", *arguments).stdout.strip()

    def get(self, path="/metrics"):
        with urllib.request.urlopen(f"http://{self.http}{path}", timeout=30 * PATIENCE) as answer:
            return answer.read().decode()

    def metrics(self):
        """{(name, frozenset of labels): value} of /metrics."""
        found = {}
        for line in self.get().splitlines():
            if not line.startswith("#"):
                name, labels, value = re.fullmatch(r"([a-z0-9_]+)(?:\{(.*)\})? (\S+)", line).groups()
                found[name, frozenset(re.findall(r'(\w+)="((?:[^"\\]|\\.)*)"', labels or ""))] = float(value)
        return found

    def value(self, name, /, **labels):
        """The only sample of that name with these labels among its own; None if there is none."""
        found = [v for (n, have), v in self.metrics().items() if n == name and labels.items() <= dict(have).items()]
        assert len(found) <= 1, found
        return found[0] if found else None

    def stop(self):
        for process in [*self.executors, self.process]:
            if process and process.poll() is None:
                process.send_signal(signal.SIGTERM)
        for process in [*self.executors, self.process]:
            if process:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(30 * PATIENCE)
                process.kill()
                process.stdout.close()
        self.socket.cleanup()
