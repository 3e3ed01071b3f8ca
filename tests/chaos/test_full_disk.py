"""A full disk under the spool, and under the checkpoint directory: one clear error, nothing lost, nothing crashes."""

import os
import pathlib
import subprocess

import pytest



@pytest.fixture
def small_disk(tmp_path):
    """A file system of 3 MiB. Mounting needs root."""
    mount = tmp_path / "small"
    mount.mkdir()
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", mount]).returncode != 0:
        pytest.skip("mounting a tmpfs needs root")
    yield mount
    subprocess.run(["umount", "-l", mount], check=True)


def fill(filler):
    with open(filler, "wb", buffering=0) as f:
        try:
            while True:
                f.write(bytes(4096))
        except OSError:
            pass


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
