"""`trainyard up`: two services keep apart, one directory has one service, and nothing is left behind."""

import json
import os
import signal
import subprocess

import pytest

from service_fixture import BIN, PATIENCE, Database, Service, descendants, process_start_time, wait_until


def test_two_services_on_one_machine_do_not_disturb_each_other(tmp_path, tiny):
    services = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        services.append(Service(tmp_path / name).start())
    one, two = services
    assert one.address != two.address
    jobs = [service.submit(tiny(steps=5, name=name)) for service, name in zip(services, ("first", "second"))]
    for service, job, name in zip(services, jobs, ("first", "second")):
        assert service.wait_end(job)["display_name"] == name
        assert len(service.json("list")["jobs"]) == 1
    one.stop()
    two.wait_end(two.submit(tiny(steps=2)))
    two.stop()


def test_a_second_up_on_one_directory_is_refused(service):
    done = subprocess.run([BIN / "trainyard", "up", "--dir", service.directory], capture_output=True, text=True,
                          env=service.environment(), timeout=300)
    assert done.returncode == 1 and str(service.directory) in done.stderr, done.stderr
    assert service.json("executors")["executors"], "the first one goes on"


def test_an_address_in_use_is_a_clear_error(service, tmp_path):
    import socket
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = "127.0.0.1:%d" % taken.getsockname()[1]
        (tmp_path / "other").mkdir()
        done = subprocess.run([BIN / "trainyard", "up", "--dir", tmp_path / "other", "--listen", address],
                              capture_output=True, text=True, env=service.environment(), timeout=60 * PATIENCE)
        assert done.returncode == 1 and address in done.stderr, done.stderr


def test_down_stops_a_detached_service_and_what_it_stored_stays(tmp_path, tiny):
    (tmp_path / "service").mkdir()
    service = Service(tmp_path / "service")
    environment = service.environment()
    first = subprocess.run([BIN / "trainyard", "up", "--dir", service.directory, *service.arguments, "--detach"], capture_output=True, text=True,
                           env=environment, timeout=60 * PATIENCE)
    assert first.returncode == 0 and first.stdout.startswith("ready "), first.stderr
    service.address = first.stdout.split()[1]
    job = service.submit(tiny(steps=3))
    service.cli("watch", job)
    down = subprocess.run([BIN / "trainyard", "down", "--dir", service.directory], capture_output=True, text=True,
                          env=environment, timeout=60 * PATIENCE)
    assert down.returncode == 0, down.stderr
    service.start()
    assert service.json("get", job)["state"] == "SUCCEEDED"
    service.stop()


@pytest.mark.parametrize("moment", ["at once", "when ready", "while training"])
def test_ctrl_c_at_any_moment_leaves_nothing(tmp_path, tiny, moment):
    (tmp_path / "service").mkdir()
    service = Service(tmp_path / "service")
    if moment == "at once":
        service.up = subprocess.Popen([BIN / "trainyard", "up", "--dir", service.directory], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, env=service.environment(), start_new_session=True)
        wait_until(lambda: descendants(service.up.pid), 10, "the first child")
        service.note_processes()
        service.up.send_signal(signal.SIGINT)
        service.up.wait(40 * PATIENCE)
        service.assert_nothing_left()
    else:
        service.start()
        if moment == "while training":
            job = service.submit(tiny(steps=100000, data=2))
            with service.watch(job) as watch:
                watch.until_step(3)
        service.stop()
    assert not list((tmp_path / "service").glob("**/*.sock")), "no socket"
    service.start()  # and a second service stands up on what is there
    service.stop()


def test_kill_9_of_up_takes_everything_with_it(tmp_path):
    (tmp_path / "service").mkdir()
    service = Service(tmp_path / "service").start()
    service.note_processes()
    pids = dict(service.ever_seen)
    os.kill(service.up.pid, signal.SIGKILL)
    service.up.wait()
    wait_until(lambda: all(process_start_time(p) != s for p, s in pids.items() if s), 15, "its children died with it")
    service.start()
    service.stop()


def test_two_services_with_one_checkpoint_directory_leave_each_others_checkpoints_alone(tmp_path, tiny):
    """Both number their first job 1. The directory is the one's that came first; the other is told in a sentence."""
    shared = tmp_path / "shared"
    shared.mkdir()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    one, two = Service(tmp_path / "one"), Service(tmp_path / "two")
    for service in (one, two):
        service.arguments += ["--checkpoint-root", str(shared)]
        service.start()
    spec = tiny(steps=5, checkpoint__directory=f"file://{shared}")
    first = one.wait_end(one.submit(spec))
    files = {path: path.read_bytes() for path in shared.rglob("*") if path.is_file()}
    mark = shared / ".trainyard-cluster"
    assert mark in files and len(files) > 3
    sampled = one.cli("sample", 1, "--prompt", "a", "--tokens", 20, "--temperature", 0).stdout

    def refused_submit(service, spec, *options):
        path = service.directory / "refused.json"
        path.write_text(json.dumps(spec))
        return service.cli("submit", path, *options, status=2).stderr

    theirs = tiny(steps=7, seed=2, checkpoint__directory=f"file://{shared}")
    said = refused_submit(two, theirs)
    assert f"checkpoint.directory: '{shared}' belongs to cluster {files[mark].decode().strip()}" in said, said
    refused = two.wait_end(two.submit(theirs, "--skip-check"), "FAILED")
    assert refused["attempt"] == 1 and files[mark].decode().strip() in refused["reason"], refused["reason"]
    assert "use another directory" in refused["reason"]
    two.cli("delete", 1)
    wait_until(lambda: "belongs to cluster" in log_of(two), 30, "the other's sweep")
    assert {path: path.read_bytes() for path in shared.rglob("*") if path.is_file()} == files
    assert one.cli("sample", 1, "--prompt", "a", "--tokens", 20, "--temperature", 0).stdout == sampled

    # The files are given to the other, as if the share were mounted in another's place.
    mark.write_text("11111111-2222-3333-4444-555555555555\n")
    done = one.cli("sample", 1, "--prompt", "a", status=None)
    assert done.returncode != 0 and "11111111-2222-3333-4444-555555555555" in done.stderr, done
    checkpoint = one.json("checkpoints", 1)["checkpoints"][0]["name"]
    for given, option, field in ((tiny(steps=9, name="fork"), ("--fork", "1"), "the checkpoint that the fork begins with: "),
                                 (tiny(train__init_from=checkpoint), (), "train.init_from: ")):
        assert f"{field}'{shared}' belongs to cluster 11111111" in refused_submit(one, given, *option)
    forked = one.wait_end(one.submit(tiny(steps=9, name="fork"), "--fork", "1", "--skip-check"), "FAILED")
    assert "11111111-2222-3333-4444-555555555555" in forked["reason"], forked["reason"]
    mark.write_bytes(files[mark])
    assert one.wait_end(one.submit(spec))["weights_sha256"] == first["weights_sha256"]
    for service in (one, two):
        service.stop()


def test_a_controller_does_not_start_on_another_clusters_checkpoints(service):
    mark = service.directory / "checkpoints" / ".trainyard-cluster"
    own = mark.read_text()
    database = Database(service, "other")
    done = subprocess.run([BIN / "trainyard-controller", "--database", database.conninfo, "--listen", "127.0.0.1:0",
                           "--checkpoints", service.directory / "checkpoints"], capture_output=True, text=True,
                          env=service.environment(), timeout=60 * PATIENCE)
    assert done.returncode == 1 and "--checkpoints: " in done.stderr and own.strip() in done.stderr, done.stderr
    assert mark.read_text() == own


def log_of(service):
    return "".join(path.read_text() for path in (service.directory / "logs").glob("controller.log*"))
