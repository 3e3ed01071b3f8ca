"""`trainyard up`: two services keep apart, one directory has one service, and nothing is left behind."""

import os
import signal
import subprocess

import pytest

from yard import BIN, PATIENCE, Service, descendants, process_start_time, wait_until


def test_two_services_on_one_machine_do_not_disturb_each_other(tmp_path, tiny):
    yards = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        yards.append(Service(tmp_path / name).start())
    one, two = yards
    assert one.address != two.address
    jobs = [yard.submit(tiny(steps=5, name=name)) for yard, name in zip(yards, ("first", "second"))]
    for yard, job, name in zip(yards, jobs, ("first", "second")):
        assert yard.wait_end(job)["display_name"] == name
        assert len(yard.json("list")["jobs"]) == 1
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
    (tmp_path / "yard").mkdir()
    yard = Service(tmp_path / "yard")
    environment = yard.environment()
    first = subprocess.run([BIN / "trainyard", "up", "--dir", yard.directory, "--detach"], capture_output=True, text=True,
                           env=environment, timeout=60 * PATIENCE)
    assert first.returncode == 0 and first.stdout.startswith("ready "), first.stderr
    yard.address = first.stdout.split()[1]
    job = yard.submit(tiny(steps=3))
    yard.cli("watch", job)
    down = subprocess.run([BIN / "trainyard", "down", "--dir", yard.directory], capture_output=True, text=True,
                          env=environment, timeout=60 * PATIENCE)
    assert down.returncode == 0, down.stderr
    yard.start()
    assert yard.json("get", job)["state"] == "SUCCEEDED"
    yard.stop()


@pytest.mark.parametrize("moment", ["at once", "when ready", "while training"])
def test_ctrl_c_at_any_moment_leaves_nothing(tmp_path, tiny, moment):
    (tmp_path / "yard").mkdir()
    yard = Service(tmp_path / "yard")
    if moment == "at once":
        yard.up = subprocess.Popen([BIN / "trainyard", "up", "--dir", yard.directory], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL, env=yard.environment(), start_new_session=True)
        wait_until(lambda: descendants(yard.up.pid), 10, "the first child")
        yard.note_processes()
        yard.up.send_signal(signal.SIGINT)
        yard.up.wait(40 * PATIENCE)
        yard.assert_nothing_left()
    else:
        yard.start()
        if moment == "while training":
            job = yard.submit(tiny(steps=100000, data=2))
            with yard.watch(job) as watch:
                watch.until_step(3)
        yard.stop()
    assert not list((tmp_path / "yard").glob("**/*.sock")), "no socket"
    yard.start()  # and a second service stands up on what is there
    yard.stop()


def test_kill_9_of_up_takes_everything_with_it(tmp_path):
    (tmp_path / "yard").mkdir()
    yard = Service(tmp_path / "yard").start()
    yard.note_processes()
    pids = dict(yard.ever_seen)
    os.kill(yard.up.pid, signal.SIGKILL)
    yard.up.wait()
    wait_until(lambda: all(process_start_time(p) != s for p, s in pids.items() if s), 15, "its children died with it")
    yard.start()
    yard.stop()
