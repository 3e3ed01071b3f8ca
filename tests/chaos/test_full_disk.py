"""A full disk under the spool, and under the checkpoint directory: one clear error, nothing lost, nothing crashes."""

import os
import pathlib
import subprocess

import pytest

from service_fixture import Service


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 3 MiB. Mounting needs root."""
    mount = tmp_path / "small"
    mount.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m,mode=755", "tmpfs", mount]).returncode != 0:
        pytest.skip("mounting a tmpfs needs root")
    yield mount
    subprocess.run(["umount", "-l", mount], check=True)


@pytest.fixture
def service(tmp_path, small_disk):
    """One executor of two slots, whose jobs may write their checkpoints to the small disk."""
    service = Service(tmp_path / "service", checkpoint_roots=[small_disk])
    service.directory.mkdir()
    yield service.start()
    service.stop()


@pytest.fixture
def two(tmp_path, small_disk):
    """Two executors of one slot each."""
    service = Service(tmp_path / "service", executors=2, slots=1, checkpoint_roots=[small_disk])
    service.directory.mkdir()
    yield service.start()
    service.stop()


def fill(filler):
    with open(filler, "wb", buffering=0) as f:
        try:
            while True:
                f.write(bytes(4096))
        except OSError:
            pass


def executors_of_attempts(service, job):
    """The executor of rank 0 in each attempt, the first attempt first."""
    return [a["placements"][0]["executor"] for a in service.json("get", job)["attempts"]]


def test_a_pause_that_finds_no_room_for_its_checkpoint_says_so_and_what_is_lost(service, tiny, small_disk):
    filler = small_disk / "filler"
    job = service.submit(tiny(steps=100000, data=2, every=0, retry__max_restarts=0,
                              checkpoint__directory=f"file://{small_disk}"))
    with service.watch(job) as watch:
        watch.until_step(5)
        fill(filler)
        service.cli("pause", job)
        told = watch.until_state("PAUSED")["message"]
        assert told.startswith("paused by its user; it will go on from its newest checkpoint, without what"), told
        assert "No space left on device" in told and str(small_disk) in told, told
        filler.unlink()
        service.cli("resume", job)
        watch.until(lambda u: u.get("event", {}).get("state") == "RUNNING" and u["event"]["attempt"] == 2, 60, "attempt 2")
        watch.until_step(1)
        service.cli("pause", job)
        assert watch.until_state("PAUSED")["message"].startswith("paused by its user after step ")
    service.cli("cancel", job)
    service.wait_end(job, "CANCELLED")


def test_a_full_checkpoint_disk_is_told_and_training_goes_on_when_there_is_room(service, tiny, small_disk):
    filler = small_disk / "filler"
    spec = tiny(steps=100000, data=2, every=50, checkpoint__directory=f"file://{small_disk}", checkpoint__keep_last=1)
    job = service.submit(spec)
    with service.watch(job) as watch:
        watch.until_event("checkpoint_committed", 60)
        fill(filler)
        told = watch.until(lambda u: "No space left" in u.get("event", {}).get("message", ""), 60, "the full disk is told")
        assert str(small_disk) in told["event"]["message"]
        filler.unlink()
        watch.until_event("checkpoint_committed", 120)
    service.cli("cancel", job)
    service.wait_end(job, "CANCELLED")
    assert not list(pathlib.Path(small_disk).glob("**/*.tmp")), "no partial file"


def test_a_final_checkpoint_without_room_is_written_from_another_host_and_does_not_count(two, tiny, small_disk):
    filler = small_disk / "filler"
    spec = tiny(steps=5, every=0, retry__max_restarts=0, checkpoint__directory=f"file://{small_disk}")
    first = two.submit(spec)  # marks the folder as this cluster's, for which the next job would need room
    two.wait_end(first)
    used, = executors_of_attempts(two, first)
    # The other host takes the job only after there is room.
    other, = {e["name"] for e in two.json("executors")["executors"]} - {used}
    two.cli("drain", other)
    fill(filler)
    job = two.submit(spec, "--skip-check")  # the check would find the full disk
    with two.watch(job) as watch:
        message = watch.until_event("host_fault", 60)["message"]
        assert "No space left on device" in message and str(small_disk) in message, message
        filler.unlink()
        two.cli("undrain", other)
    ended = two.wait_end(job)
    assert int(ended.get("restarts", 0)) == 0
    assert executors_of_attempts(two, job) == [used, other]


def test_a_full_disk_at_the_start_names_the_file_that_could_not_be_written(service, tiny, small_disk):
    fill(small_disk / "filler")
    job = service.submit(tiny(every=0, retry__max_restarts=0, checkpoint__directory=f"file://{small_disk}"), "--skip-check")
    with service.watch(job) as watch:
        message = watch.until_event("host_fault", 60)["message"]
        assert f"{small_disk}/" in message and "No space left on device" in message, message
    service.cli("cancel", job, status=None)  # the job may have failed
