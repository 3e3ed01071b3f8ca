"""Hosts that share no folder: executors of one service, each with folders of its own, and an S3 server for what they share."""

import contextlib
import os
import pathlib
import signal
import subprocess

from object_store import SECRETS, free_ports
from service_fixture import BIN, PATIENCE, SANDBOX, SANITIZED, Service, process_start_time


class Host:
    """An executor with a folder of its own for everything, and no data root."""

    def __init__(self, service, directory, slots=1, options=(), user=None, address=None):
        """user: a uid that runs it, in a folder that nobody else can open, with a token of its own."""
        self.service, self.directory, self.user = service, pathlib.Path(directory), user
        self.token = {}
        if user is not None:
            self.token["TRAINYARD_TOKEN"] = service.cli("token", "create", self.directory.name, "--role", "EXECUTOR").stdout.strip()
        self.directory.mkdir(mode=0o755 if user is None else 0o700)
        self.arguments = [BIN / "trainyard-executor", "--controller", address or service.address, "--directory", self.directory / "state",
                          "--slots", str(slots), "--checkpoint-root", self.directory / "own", "--data-cache",
                          self.directory / "cache", "--sandbox", SANDBOX, *(("--cores", "1") if SANITIZED else ()), *options]
        (self.directory / "own").mkdir()
        for folder in (self.directory / "own", self.directory) if user is not None else ():
            os.chown(folder, user, user)
        self.process = None
        self.start()

    def start(self):
        other = {} if self.user is None else {"user": self.user, "group": self.user, "extra_groups": []}
        self.process = subprocess.Popen(self.arguments, **other, env=self.service.environment() | self.token, stdout=subprocess.PIPE,
                                        stderr=open(self.directory / "log", "ab"), text=True)
        self.id = self.process.stdout.readline().split()[1]
        return self

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(60 * PATIENCE)
        self.process.stdout.close()

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


@contextlib.contextmanager
def service_of_hosts(directory, n, slots=1, users=()):
    """A service, and n hosts; the store's keys are set. users: the uids of the hosts, which reach the service by TCP; they
    must be able to enter the directory."""
    address = f"127.0.0.1:{free_ports(1)[0]}" if users else None
    service = Service(directory / "service", executors=0, roots=(), options=("--listen", address) if users else ())
    service.directory.mkdir()
    service.start()
    hosts = []
    try:
        for name, value in (("S3_ID", "access_key"), ("S3_KEY", "secret_key")):
            service.cli("secret", "set", name, input=SECRETS[value].decode())
        for i in range(n):
            hosts.append(Host(service, directory / f"host-{i}", slots, user=users[i] if users else None, address=address))
        yield service, hosts
    finally:
        for host in hosts:
            host.stop()
        service.stop()


def stored(spec, url, text="s3://bucket/text", prefix="s3://bucket/checkpoints"):
    """The spec with its data and its checkpoints in the store."""
    spec["data"]["text"]["files"] = [text]
    spec["stores"] = {"s3": {"endpoint": url, "access_key": "S3_ID", "secret_key": "S3_KEY"}}
    spec["checkpoint"]["store"] = prefix
    return spec


def children(pid, program):
    """The pids of a process's children that run the program."""
    found = []
    for entry in os.listdir("/proc"):
        with contextlib.suppress(OSError, ValueError, IndexError):
            stat = pathlib.Path(f"/proc/{int(entry)}/stat").read_text()
            line = pathlib.Path(f"/proc/{entry}/cmdline").read_bytes().split(b"\0")[0].decode()
            if int(stat[stat.rindex(")") + 2:].split()[1]) == pid and os.path.basename(line) == program and process_start_time(int(entry)):
                found.append(int(entry))
    return found
