"""trainyard-data as its agent runs it: an order on descriptor 3, reports on 4."""

import contextlib
import fcntl
import os
import select
import signal
import subprocess
import tempfile
import time

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from service_fixture import BIN, PATIENCE, ROOT

with tempfile.NamedTemporaryFile() as descriptors:
    subprocess.run(["protoc", f"--descriptor_set_out={descriptors.name}", "--include_imports", f"-I{ROOT}/api",
                    "trainyard/v1/worker.proto"], check=True)
    POOL = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors.read()).file:
        POOL.Add(file)


def message(name):
    return message_factory.MessageFactory(POOL).GetPrototype(POOL.FindMessageTypeByName(f"trainyard.v1.{name}"))


COMMAND, RECORD, END = message("WorkerCommand"), message("WorkerRecord"), message("WorkerEnd")
FINISHED, BAD_SPEC, HOST_FAULT, CHECKPOINT_UNREADABLE = (END.Cause.Value(f"CAUSE_{name}") if f"CAUSE_{name}" in END.Cause.keys() else END.Cause.Value(name)
                                  for name in ("FINISHED", "BAD_SPEC", "HOST_FAULT", "CHECKPOINT_UNREADABLE"))


def order(uris, cache, mib=1024, stores=(), check=False, patience_s=0, checkpoint=("", ""), weights=("", ""),
          marker="", attempt=""):
    """checkpoint, weights: what names the files, and the folder that gets them."""
    command = COMMAND()
    fetch = command.fetch_data
    fetch.checkpoint, fetch.checkpoint_folder = map(str, checkpoint)
    fetch.weights, fetch.weights_folder = map(str, weights)
    fetch.marker, fetch.attempt_uri = marker, attempt
    fetch.uris.extend(uris)
    fetch.cache, fetch.cache_bytes, fetch.check, fetch.patience_s = str(cache), int(mib * (1 << 20)), check, patience_s
    for store in stores:
        fetch.stores.add(**store)
    return command.SerializeToString()


def upload(folder, files, uri, stores, patience_s=0):
    command = COMMAND()
    shard = command.upload_shard
    shard.folder, shard.uri, shard.patience_s = str(folder), uri, patience_s
    shard.files.extend(files)
    for store in stores:
        shard.stores.add(**store)
    return command.SerializeToString()


def removal(pattern, stores, patience_s=0):
    command = COMMAND()
    command.remove_objects.pattern, command.remove_objects.patience_s = pattern, patience_s
    for store in stores:
        command.remove_objects.stores.add(**store)
    return command.SerializeToString()


class Program:
    """One process. `objects`: {name: (sha256, bytes)} of its report; `paths`: the copies in the order of the report."""

    def __init__(self, command, environment=None):
        ends = [*os.pipe(), *os.pipe()]
        commands, self.commands, self.records, records = (fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 10) for fd in ends)
        for fd in ends:
            os.close(fd)
        # The shell puts the pipes where the program looks for them.
        self.process = subprocess.Popen(
            ["bash", "-c", f'exec {BIN}/trainyard-data --agent-pid "$PPID" 3<&{commands} 4>&{records} {commands}<&- {records}>&-'],
            pass_fds=(commands, records), env={**os.environ, "TRAINYARD_PEER_PATIENCE_S": "600", **(environment or {})}, stderr=subprocess.PIPE)
        os.close(commands)
        os.close(records)
        os.write(self.commands, len(command).to_bytes(4, "little") + command)
        self.buffer, self.reports, self.last, self.killed = b"", [], None, False

    def read(self, timeout_s):
        """False: the pipe has ended."""
        assert select.select([self.records], [], [], timeout_s)[0], "trainyard-data reports nothing"
        data = os.read(self.records, 1 << 20)
        self.buffer += data
        while len(self.buffer) >= 4 and len(self.buffer) >= 4 + (n := int.from_bytes(self.buffer[:4], "little")):
            assert n < 256 << 10, "a report is a record"
            report = RECORD.FromString(self.buffer[4:4 + n]).data
            self.buffer = self.buffer[4 + n:]
            self.reports.append(report)
            self.last = report if report.last else self.last
        return bool(data)

    def wait(self, timeout_s=60):
        """The last report."""
        end = time.monotonic() + timeout_s * PATIENCE
        while not self.last:
            assert self.read(max(0, end - time.monotonic())), f"trainyard-data has ended: {self.process.communicate()}"
        return self.last

    @property
    def listed(self):
        return [o for report in self.reports for o in report.objects]

    @property
    def objects(self):
        return {o.name: (o.sha256, o.bytes) for o in self.listed}

    @property
    def paths(self):
        return [f"{report.folder}/{o.sha256}" for report in self.reports for o in report.objects]

    def events(self, kind):
        return [report.message for report in self.reports if report.event == kind]

    def close(self):
        for fd in (self.commands, self.records):
            with contextlib.suppress(OSError):
                os.close(fd)
        status = self.process.wait(60 * PATIENCE)
        error = self.process.stderr.read().decode()
        self.process.stderr.close()
        return status, error

    def kill(self):
        self.killed = True
        self.process.send_signal(signal.SIGKILL)
        self.close()


@contextlib.contextmanager
def running(*arguments, environment=None, **more):
    with running_command(order(*arguments, **more), environment) as program:
        yield program


@contextlib.contextmanager
def running_command(command, environment=None):
    program = Program(command, environment)
    try:
        yield program
    finally:
        if not program.killed:
            status, error = program.close()
            assert (status, error) == (0, ""), f"it ends well, and a sanitizer finds nothing: {status} {error}"


def done(command):
    """The program after its end."""
    with running_command(command) as program:
        program.wait()
    return program


def fetched(*arguments, environment=None, **more):
    """The program after its end."""
    with running(*arguments, environment=environment, **more) as program:
        program.wait()
    return program
