"""The code of a program job when something fails on its way: a killed client, controller or agent, full disks, changed
bytes in the database, and limits. A failure is a sentence, and what can be repeated is repeated."""

import base64
import contextlib
import fcntl
import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import grpc
import pytest

from service_fixture import BIN, PATIENCE, ROOT, Database, Service, descendants, make_service, process_start_time, wait_until
from test_program_code import archive_of, cached, coded, copies, folder, log_lines, sql, submit, write_files

sys.path.append(str(ROOT / "tests" / "rpc"))
from reflect import Reflector, channel  # noqa: E402

MIB = 1 << 20
__all__ = ["folder"]


@pytest.fixture
def own_host():
    yield from make_service(executors=1, slots=2)


def large(folder, mib):
    """As many bytes again, which take a while; another archive for each test."""
    with open(folder / "data.bin", "wb") as f:
        f.write(os.urandom(4096))
        f.truncate(mib * MIB)


def begin_submit(service, folder):
    submit_file = folder / "job.json"
    submit_file.write_text('{"name": "coded", "program": {"command": ["./train.sh"], "code": {"folder": "."}}}')
    return subprocess.Popen([BIN / "trainyard", "submit", submit_file], env=service.environment(), text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def chunks(service):
    return int(sql(service, "SELECT count(*) FROM code_chunk"))


def until_uploading(service, client, more_than=0):
    """The client is stopped in the middle of its upload."""
    wait_until(lambda: chunks(service) > more_than or client.poll() is not None, 30, "the first chunks")
    client.send_signal(signal.SIGSTOP)
    assert int(sql(service, "SELECT count(*) FROM code_archive WHERE complete_time IS NULL")) == 1, "the upload was too fast"


@contextlib.contextmanager
def fetch_stands_still(service, folder):
    """The lock that a download holds is taken: the fetch of this folder's archive waits. What a killed download would
    have left is there, too."""
    (folder / "job.json").write_text(json.dumps(coded()))
    spec = service.cli("validate", folder / "job.json", "-o", "yaml").stdout
    (cache,) = service.directory.glob("executors/*/code/cache")
    with open(cache / (re.search('archive: "?([0-9a-f]{64})', spec)[1] + ".part"), "wb") as part:
        part.write(b"half of it")
        part.flush()
        fcntl.flock(part, fcntl.LOCK_EX)
        yield


def fetchers(service):
    return [pid for pid, line in descendants(service.up.pid).items()
            if os.path.basename(line.split(" ")[0]) == "trainyard-code"]


def test_an_upload_continues_after_a_killed_controller_and_a_killed_client(own_host, folder):
    large(folder, 96)
    client = begin_submit(own_host, folder)
    until_uploading(own_host, client)
    client.kill()
    client.communicate()
    before, first = chunks(own_host), sql(own_host, "SELECT xmin FROM code_chunk WHERE number = 0")
    client = begin_submit(own_host, folder)
    until_uploading(own_host, client, before + 2)
    os.kill(own_host.pid_of("trainyard-controller"), signal.SIGKILL)
    client.send_signal(signal.SIGCONT)
    out, err = client.communicate(timeout=120 * PATIENCE)
    assert client.returncode == 0, err
    assert "uploading 96.0 MiB of code" in err
    own_host.wait_end(out.strip())
    assert log_lines(own_host, out.strip()) == ["hello"]
    assert sql(own_host, "SELECT xmin FROM code_chunk WHERE number = 0") == first, "what was stored was not sent again"
    assert sql(own_host, "SELECT count(*) FROM code_archive") == "1" and len(own_host.json("list")["jobs"]) == 1


def test_two_clients_that_upload_the_same_folder_at_once_make_one_archive(own_host, folder):
    large(folder, 32)
    clients = [begin_submit(own_host, folder) for _ in range(2)]
    jobs = [client.communicate(timeout=120 * PATIENCE)[0].strip() for client in clients]
    assert len(set(jobs)) == 2
    for job in jobs:
        own_host.wait_end(job)
    assert archive_of(own_host, jobs[0]) == archive_of(own_host, jobs[1])
    assert sql(own_host, "SELECT count(*) FROM code_archive") == "1" and len(cached(own_host)) == 1


def test_an_agent_that_is_killed_while_it_fetches_starts_the_job_again(own_host, folder):
    with fetch_stands_still(own_host, folder):
        job = submit(own_host, folder)
        (waiting,) = wait_until(lambda: fetchers(own_host), 20, "the process that fetches")
        os.kill(own_host.pid_of("trainyard-executor"), signal.SIGKILL)
        wait_until(lambda: process_start_time(waiting) is None, 20, "the end of that process")
    own_host.wait_end(job)
    assert log_lines(own_host, job) == ["hello"]
    assert not list(own_host.directory.glob("executors/*/code/cache/*.part"))


def test_a_fetch_continues_when_the_controller_is_killed(own_host, folder):
    with fetch_stands_still(own_host, folder):
        job = submit(own_host, folder)
        wait_until(lambda: fetchers(own_host), 20, "the process that fetches")
        os.kill(own_host.pid_of("trainyard-controller"), signal.SIGKILL)
    ended = own_host.wait_end(job)
    assert ended["attempt"] == 1 and log_lines(own_host, job) == ["hello"]


def test_the_process_that_reads_archives_of_clients_has_no_capability_of_the_agent(own_host, folder):
    """An agent that is root has files of all users: then it keeps CAP_DAC_OVERRIDE (1) and CAP_FOWNER (3)."""
    with fetch_stands_still(own_host, folder):
        job = submit(own_host, folder)
        (pid,) = wait_until(lambda: fetchers(own_host), 20, "the process that fetches")
        (cache,) = own_host.directory.glob("executors/*/code/cache")
        wait_until(lambda: [fd for fd in os.listdir(f"/proc/{pid}/fd") if os.readlink(f"/proc/{pid}/fd/{fd}").startswith(str(cache))],
                   20, "the wait for the lock")
        status = dict(line.split(":\t", 1) for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines())
    own_host.wait_end(job)
    kept = 1 << 1 | 1 << 3 if os.geteuid() == 0 else 0
    assert status["NoNewPrivs"] == "1"
    for name, allowed in [("CapInh", 0), ("CapAmb", 0), ("CapPrm", kept), ("CapEff", kept)]:
        assert int(status[name], 16) & ~allowed == 0, (name, status[name])


def test_a_fetch_that_stands_still_holds_up_no_other_job_and_a_cancel_ends_it(own_host, folder):
    with fetch_stands_still(own_host, folder):
        waiting = submit(own_host, folder)
        wait_until(lambda: fetchers(own_host), 20, "the process that fetches")
        other = own_host.submit({"name": "other", "program": {"command": ["true"]}})
        own_host.wait_end(other)
        assert own_host.json("get", waiting)["state"] == "STARTING"
        own_host.cli("cancel", waiting)
        own_host.wait_end(waiting, "CANCELLED")
        wait_until(lambda: not fetchers(own_host), 20, "the end of the process that fetches")
    wait_until(lambda: not [path for path in copies(own_host) if path.name.startswith(f"{waiting}-1-")], 20, "the end of its copy")


@pytest.mark.parametrize("change, sentence", [
    ("SET data = set_byte(data, 700, 255)", "have changed in the database"),
    ("SET data = set_byte(data, 700, 255), crc32c = {crc}", "has other bytes than its name says"),
])
def test_changed_bytes_in_the_database_end_the_job_with_a_sentence(own_host, folder, change, sentence):
    own_host.wait_end(submit(own_host, folder))
    for path in cached(own_host):
        path.unlink()
    sql(own_host, f"UPDATE code_chunk {change.format(crc=0)}")
    if "crc32c" in change:  # the checksum agrees with the changed bytes
        data = bytes.fromhex(sql(own_host, "SELECT encode(data, 'hex') FROM code_chunk"))
        sql(own_host, f"UPDATE code_chunk SET crc32c = {crc32c(data)}")
    job = submit(own_host, folder)
    ended = own_host.wait_end(job, "FAILED")
    assert sentence in ended["reason"] and ended["attempt"] == 1, ended["reason"]
    if "crc32c" not in change:  # the controller has seen it: the next submission repairs the archive
        again = submit(own_host, folder)
        own_host.wait_end(again)
        own_host.cli("retry", job)
        own_host.wait_end(job)
        assert log_lines(own_host, again) == ["hello"] == log_lines(own_host, job)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def mounted(path, size):
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size},mode=711", "tmpfs", path]).returncode != 0:
        pytest.skip("mounting a tmpfs needs root")


def test_a_full_disk_under_the_cache_or_the_copies_is_a_fault_of_the_host(own_host, folder):
    job = submit(own_host, folder, coded(["sh", "-c", "pwd"]))
    own_host.wait_end(job)
    copies_folder = os.path.dirname(log_lines(own_host, job)[0])
    (cache,) = own_host.directory.glob("executors/*/code/cache")
    large(folder, 8)
    for path, sentence in [(copies_folder, "unpack 'data.bin' of the code"), (cache, "reserve space in")]:
        mounted(path, "2m")
        try:
            job = submit(own_host, folder)
            reason = own_host.wait_end(job, "FAILED")["reason"]
            assert sentence in reason and ("No space left" in reason or "Write failed" in reason), reason
            assert not list(cache.glob("*.part")) and not list(os.scandir(copies_folder)), "nothing stays"
        finally:
            subprocess.run(["umount", "-l", path], check=True)
        for kept in cached(own_host):
            kept.unlink()
    job = submit(own_host, folder)
    own_host.wait_end(job)
    assert log_lines(own_host, job) == ["hello"]


@pytest.fixture
def two_hosts():
    yield from make_service(executors=2, slots=1)


@pytest.mark.parametrize("make, command, attempts", [
    (lambda f: write_files(f, {"train.sh": "#!/no/such/interpreter\n"}), "./train.sh", 2),
    (lambda f: (f / "dangling").symlink_to("absent"), "./dangling", 1),
])
def test_only_a_command_that_the_code_does_not_have_is_a_fault_of_the_spec(two_hosts, folder, make, command, attempts):
    make(folder)
    ended = two_hosts.wait_end(submit(two_hosts, folder, coded([command])), "FAILED")
    assert f"'{command}' cannot be executed: No such file or directory" in ended["reason"]
    assert ended["attempt"] == attempts, "a host that lacks an interpreter is not the only one"


def test_a_folder_of_copies_that_was_removed_is_made_again(own_host, folder):
    own_host.wait_end(submit(own_host, folder))
    (record,) = own_host.directory.glob("executors/*/code/copies")
    removed = record.read_text()
    shutil.rmtree(removed)
    job = submit(own_host, folder)
    own_host.wait_end(job)
    assert log_lines(own_host, job) == ["hello"] and record.read_text() != removed


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a folder to another user needs root")
def test_a_copy_whose_folder_another_user_has_made_anew_is_not_removed(own_host, folder):
    write_files(folder, {"train.sh": "#!/bin/sh\npwd\nread line < $HOLD\n"})
    hold = folder / "hold"
    spec = coded()
    spec["program"]["environment"] = {"HOLD": str(hold)}
    (folder / ".trainyardignore").write_text("hold\n")
    os.mkfifo(hold)
    job = submit(own_host, folder, spec)
    (copy,) = wait_until(lambda: log_lines(own_host, job), 30, "the program")
    shutil.rmtree(os.path.dirname(copy))
    try:
        write_files(pathlib.Path(copy), {"victim": "unchanged"})
        os.chown(os.path.dirname(copy), 65534, 65534)
        hold.write_text("go\n")
        own_host.wait_end(job)
        later = submit(own_host, folder, coded(["true"]))  # its copy is made and removed after that one
        own_host.wait_end(later)
        wait_until(lambda: not copies(own_host), 20, "the removal of the later copy")
        assert pathlib.Path(copy, "victim").read_text() == "unchanged"
    finally:
        shutil.rmtree(os.path.dirname(copy))


@pytest.mark.skipif(os.geteuid() != 0, reason="giving a folder to another user needs root")
def test_an_agent_forgets_a_folder_of_copies_that_now_belongs_to_another_user(own_host, folder, tmp_path_factory):
    other = tmp_path_factory.mktemp("reboot") / "trainyard-code-abcdef"
    write_files(other, {"victim": "unchanged"})
    os.chown(other, 65534, 65534)
    record = next(own_host.directory.glob("executors/*/code")) / "copies"
    record.write_text(str(other))
    os.kill(own_host.pid_of("trainyard-executor"), signal.SIGKILL)
    wait_until(lambda: not record.exists(), 30, "the next agent")
    assert (other / "victim").read_text() == "unchanged"
    job = submit(own_host, folder)
    own_host.wait_end(job)
    assert log_lines(own_host, job) == ["hello"]


def test_an_archive_stays_while_a_job_refers_to_it_and_is_then_collected(own_host, folder):
    kept, deleted = submit(own_host, folder), None
    write_files(folder, {"message": "other"})
    deleted = submit(own_host, folder)
    own_host.wait_end(kept)
    own_host.wait_end(deleted)
    name = archive_of(own_host, deleted)
    own_host.cli("delete", deleted)
    wait_until(lambda: sql(own_host, "SELECT count(*) FROM job_code") == "1", 30, "the removal of the job's rows")
    sql(own_host, "UPDATE code_archive SET use_time = use_time - interval '25 hours'")
    os.kill(own_host.pid_of("trainyard-controller"), signal.SIGKILL)  # the next one begins with a pass
    wait_until(lambda: sql(own_host, "SELECT count(*) FROM code_archive") == "1", 60, "garbage collection")
    assert sql(own_host, "SELECT encode(sha256, 'hex') FROM code_archive") == archive_of(own_host, kept) != name
    assert int(sql(own_host, "SELECT bytes FROM code_total")) == int(sql(own_host, "SELECT sum(bytes) FROM code_archive"))
    again = submit(own_host, folder)
    own_host.wait_end(again)
    assert archive_of(own_host, again) == name


@pytest.mark.skipif(os.geteuid() != 0, reason="starting processes as other users needs root")
def test_a_program_of_another_user_reads_its_code_and_cannot_change_it(folder):
    place = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-code-user-"))
    place.chmod(0o755)
    (place / "service").mkdir()
    (place / "checkpoints").mkdir(mode=0o777)
    service = Service(place / "service", executors=0).start()
    executor = subprocess.Popen(
        [BIN / "trainyard-executor", "--controller", service.address, "--directory", place / "state", "--slots", "2",
         "--checkpoint-root", place / "checkpoints", "--allow-programs", "--worker-user", "nobody"],
        stdout=subprocess.PIPE, stderr=open(place / "log", "wb"), env=service.environment(), text=True)
    try:
        assert executor.stdout.readline().startswith("ready "), (place / "log").read_text()
        write_files(folder, {"train.sh": "#!/bin/sh\nid -un; cat message; echo; touch message || echo no; touch new || echo no; "
                             "chmod u+w . || echo no; rm -rf $TRAINYARD_CODE; test -r message && echo there; "
                             "ls $(dirname $TRAINYARD_CODE) || echo no; touch $TRAINYARD_WORK/new && echo yes\n"})
        job = submit(service, folder, None, "--skip-check")
        service.wait_end(job)
        assert log_lines(service, job) == ["nobody", "hello", "no", "no", "no", "there", "no", "yes"]
    finally:
        executor.terminate()
        executor.wait(40 * PATIENCE)
        executor.stdout.close()
        service.stop()
        shutil.rmtree(place)


def test_archives_beyond_the_limit_of_the_controller_are_refused(own_host, folder, tmp_path_factory):
    directory = tmp_path_factory.mktemp("limit")
    database = Database(own_host, "code_limit")
    address = f"unix:{directory}/controller.sock"
    controller = subprocess.Popen(
        [BIN / "trainyard-controller", "--database", database.conninfo, "--checkpoints", directory, "--listen", address,
         "--code-mib", "1"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=own_host.environment(), text=True)
    try:
        assert controller.stdout.readline().startswith("ready ")
        arguments = ["--controller", address, "--wait-for-hosts", "--skip-check"]
        assert submit(own_host, folder, None, *arguments) == "1"
        large(folder, 1)
        refused = submit(own_host, folder, None, *arguments, status=1)
        assert "the archives of code have 1 MiB, their maximum (--code-mib)" in refused
    finally:
        controller.terminate()
        controller.wait(40 * PATIENCE)
        controller.stdout.close()


def first_line_after_submit(service, folder, spec):
    """Seconds from the start of the client to the first line of the program."""
    begun = time.time()
    job = submit(service, folder, spec)
    service.wait_end(job)
    (line,) = [line for line in log_lines(service, job)]
    return float(line) - begun


def test_a_changed_folder_runs_within_two_seconds_and_an_unchanged_one_costs_a_tenth(own_host, folder):
    """Medians of seven. The times are printed; the limits hold on a machine that is not overloaded."""
    files = {f"package/module_{i}.py": f"x = {i}\n" * 200 for i in range(200)}
    write_files(folder, {**files, "train.sh": "#!/bin/sh\nexec date +%s.%N\n"})
    plain = {"name": "plain", "program": {"command": ["date", "+%s.%N"]}}
    own_host.wait_end(submit(own_host, folder))
    without, unchanged, changed = [], [], []
    for i in range(7):
        without.append(first_line_after_submit(own_host, folder, plain))
        unchanged.append(first_line_after_submit(own_host, folder, coded()))
        write_files(folder, {"package/module_0.py": f"x = {i}\n"})
        changed.append(first_line_after_submit(own_host, folder, coded()))
    times = {name: statistics.median(values) for name, values in
             [("without", without), ("unchanged", unchanged), ("changed", changed)]}
    print({name: f"{1000 * value:.0f} ms" for name, value in times.items()})
    assert times["changed"] <= 2 * PATIENCE
    assert times["unchanged"] - times["without"] <= 0.1 * PATIENCE


def test_an_upload_whose_chunks_another_one_dropped_is_repeated(own_host, folder):
    """The database deletes the first chunk, once, as it commits it: between the store of the last chunk and the comparison,
    as if the comparison of another upload had failed there."""
    sql(own_host, """CREATE SEQUENCE stored;
        CREATE FUNCTION drop_once() RETURNS trigger LANGUAGE plpgsql AS
        $$BEGIN IF nextval('stored') = 1 THEN DELETE FROM code_chunk WHERE archive = NEW.archive; END IF; RETURN NULL; END$$;
        CREATE CONSTRAINT TRIGGER drop_once AFTER INSERT ON code_chunk DEFERRABLE INITIALLY DEFERRED
        FOR EACH ROW EXECUTE FUNCTION drop_once()""")
    job = submit(own_host, folder)
    own_host.wait_end(job)
    assert log_lines(own_host, job) == ["hello"]
    assert sql(own_host, "SELECT last_value FROM stored") == "2"


def test_an_upload_whose_controller_died_before_it_compared_the_chunks_is_completed(own_host, folder):
    own_host.wait_end(submit(own_host, folder))
    sql(own_host, "UPDATE code_archive SET complete_time = NULL")  # as after the store of the last chunk
    job = submit(own_host, folder)
    own_host.wait_end(job)
    assert log_lines(own_host, job) == ["hello"]


def test_chunks_that_do_not_have_the_archives_hash_are_dropped_and_can_be_uploaded_again(own_host):
    """As a client of another kind calls it."""
    data = b"not a tar file" + os.urandom(MIB)
    name = hashlib.sha256(data).hexdigest()
    pieces = [data[:MIB], data[MIB:]]
    with channel(own_host.address) as calls:
        client = Reflector(calls)

        def call(method, **fields_of):
            return client.call("trainyard.v1.CodeService", method, fields_of)

        def upload(chunk, piece):
            return call("UploadChunk", archive=name, bytes=len(data), chunk=chunk, data=base64.b64encode(piece).decode())

        with pytest.raises(grpc.RpcError, match="is not a SHA-256"):
            call("GetArchive", archive="../etc")
        with pytest.raises(grpc.RpcError, match="chunk 0 has 1048576 bytes, not 3"):
            upload(0, b"abc")
        assert upload(1, pieces[1])["next_chunk"] == 0
        with pytest.raises(grpc.RpcError, match="do not have the SHA-256 of the archive") as refused:
            upload(0, bytes(MIB))
        assert refused.value.code() == grpc.StatusCode.DATA_LOSS
        assert not call("GetArchive", archive=name).get("complete")
        upload(0, pieces[0])
        assert upload(1, pieces[1])["complete"]
    job = own_host.submit({"name": "wrong", "program": {"command": ["true"], "code": {"archive": name}}})
    assert "the archive of code cannot be read" in own_host.wait_end(job, "FAILED")["reason"]
