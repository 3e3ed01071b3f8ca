"""What hosts lack: one without the data, checkpoints whose files are away for a while, a full disk. No job pays for it."""

import pathlib
import re
import shutil
import signal
import subprocess

import pytest

from service_fixture import BIN, Service, make_service


class Host:
    """An executor of one slot that may read data below one folder."""

    def __init__(self, service, directory, root):
        self.process = subprocess.Popen(
            [BIN / "trainyard-executor", "--controller", service.address, "--directory", directory, "--slots", "1",
             "--checkpoint-root", service.directory / "checkpoints", "--data-root", root],
            env=service.environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.id = self.process.stdout.readline().split()[1]

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(60)
        self.process.stdout.close()


@pytest.fixture
def hosts(tmp_path):
    """A service without executors, and host(root) to start them."""
    service = Service(tmp_path / "service", executors=0)
    service.directory.mkdir()
    service.start()
    started = []

    def host(root):
        started.append(Host(service, tmp_path / f"host-{len(started)}", root))
        return started[-1]
    yield service, host
    for h in started:
        h.stop()
    service.stop()


@pytest.fixture
def patient():
    """One executor of two slots; a job waits a second for a checkpoint that cannot be read."""
    yield from make_service(executors=1, slots=2, options=["--checkpoint-wait", "1"])


def events(service, job, kind):
    return [e for e in service.json("events", job)["events"] if e["kind"] == kind]


def checkpoints(service, job):
    return {c["name"]: c for c in service.json("checkpoints", job)["checkpoints"]}


def test_eight_jobs_beside_a_host_without_the_data_all_succeed(hosts, tiny, text_file, tmp_path):
    service, host = hosts
    (tmp_path / "good").mkdir()
    (tmp_path / "bad").mkdir()
    shutil.copy(text_file, tmp_path / "good" / "t.txt")
    bad, good = host(tmp_path / "bad"), host(tmp_path / "good")
    spec = tiny(steps=3, data__text={"files": [f"file://{tmp_path}/good/t.txt"], "validation_fraction": 0.1},
                retry__max_restarts=0)
    jobs = [service.submit(spec) for _ in range(8)]
    ended = [service.wait_end(job) for job in jobs]
    assert all(int(e.get("restarts", 0)) == 0 for e in ended)
    assert len({e["weights_sha256"] for e in ended}) == 1
    assert any(int(e["attempt"]) > 1 for e in ended), "no job has ever met the bad host"
    for job in jobs:
        where = [p["executor"] for a in service.json("get", job)["attempts"] for p in a["placements"]]
        assert where[-1] == f"executors/{good.id}" and where.count(f"executors/{bad.id}") <= 1, where
    rows = {x["name"]: x for x in service.json("executors")["executors"]}
    fault = rows[f"executors/{bad.id}"]["fault"]
    assert "t.txt" in fault["reason"] and int(fault["jobs"]) >= 1, fault
    assert "fault" not in rows[f"executors/{good.id}"]
    assert "t.txt" in service.cli("executors").stdout


def test_without_another_host_the_job_fails_and_names_what_each_lacked(hosts, tiny, tmp_path):
    service, host = hosts
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    one, two = host(tmp_path / "one"), host(tmp_path / "two")
    spec = tiny(steps=3, data__text={"files": [f"file://{tmp_path}/one/t.txt"], "validation_fraction": 0.1})
    job = service.submit(spec, "--skip-check")
    ended = service.wait_end(job, "FAILED")
    reason = ended["reason"]
    assert reason.startswith("no executor can run it: "), reason
    assert re.search(f"{one.id}: [^;]*No such file or directory", reason), reason
    assert re.search(f"{two.id}: [^;]*/one/t.txt' ", reason), reason
    assert int(ended.get("restarts", 0)) == 0 and int(ended["attempt"]) == 2
    assert {e["message"].split(":")[0] for e in events(service, job, "host_fault")} == \
        {f"executor {one.id}", f"executor {two.id}"}


def test_with_one_host_a_missing_file_fails_at_once_in_one_sentence(service, tiny, tmp_path):
    job = service.submit(tiny(steps=3, data__text={"files": [f"file://{tmp_path}/none.txt"]}), "--skip-check")
    ended = service.wait_end(job, "FAILED")
    assert ended["reason"] == f"rank 0: data.text.files[0]: open '{tmp_path}/none.txt': No such file or directory"
    assert int(ended["attempt"]) == 1


def paused(service, spec):
    """A job that was paused behind its second checkpoint. One may be done before it is: then another is tried."""
    for _ in range(5):
        job = service.submit(spec)
        with service.watch(job) as watch:
            watch.until_event("checkpoint_committed", 60)
            watch.until_event("checkpoint_committed", 60)
            service.cli("pause", job, status=None)
            ended = watch.until(lambda u: u.get("event", {}).get("state") in ("PAUSED", "SUCCEEDED"), 60, "its end")
        if ended["event"]["state"] == "PAUSED":
            return job
    raise AssertionError("five jobs were done before they were paused")


@pytest.mark.parametrize("what", ["folders", "one file"])
def test_checkpoints_that_are_away_for_a_while_cost_no_step(service, tiny, what):
    """The files come back when the job has failed to read them a second time."""
    spec = tiny(steps=3000, data=2, every=50, retry__max_restarts=0, checkpoint__keep_last=100)
    undisturbed = service.wait_end(service.submit(spec))["weights_sha256"]
    job = paused(service, spec)
    before = checkpoints(service, job)
    kept = [pathlib.Path(c["directory"]) for c in before.values()]
    moved = kept if what == "folders" else [kept[0] / "rank-0.json"]
    for path in moved:
        path.rename(f"{path}.away")
    newest = max(before.values(), key=lambda c: int(c["step"]))["name"]
    service.cli("resume", job)
    with service.watch(job) as watch:
        told = watch.until_event("checkpoint_unreadable", 60)["message"]
        assert "No such file or directory" in told and told.startswith("executor "), told
        watch.until_event("checkpoint_unreadable", 60)
        now = checkpoints(service, job)
        assert now[newest]["state"] == "COMMITTED" and now[newest]["unreadable_time"] and now[newest]["reason"]
        for path in moved:
            pathlib.Path(f"{path}.away").rename(path)
    ended = service.wait_end(job)
    assert ended["weights_sha256"] == undisturbed and int(ended.get("restarts", 0)) == 0
    attempts = service.json("get", job)["attempts"]
    assert len(attempts) >= 4 and {a["from_checkpoint"] for a in attempts[1:]} == {newest}, attempts
    after = checkpoints(service, job)
    assert all(after[name]["state"] == "COMMITTED" for name in before), after
    assert "unreadable_time" not in after[newest] and not after[newest].get("reason")


def stopped_with_two(service, spec):
    """A PAUSED job and its checkpoints, the newest first."""
    job = service.submit(spec)
    with service.watch(job) as watch:
        watch.until_event("checkpoint_committed", 60)
        watch.until_event("checkpoint_committed", 60)
        service.cli("pause", job)
        watch.until_state("PAUSED")
    return job, sorted(checkpoints(service, job).values(), key=lambda c: -int(c["step"]))


def test_after_the_limit_an_older_one_is_taken_and_verify_brings_the_newest_back(patient, tiny):
    job, kept = stopped_with_two(patient, tiny(steps=100000, data=2, every=10, checkpoint__keep_last=100))
    newest = kept[0]
    folder = pathlib.Path(newest["directory"])
    folder.rename(f"{folder}.away")
    with patient.watch(job) as watch:
        patient.cli("resume", job)
        watch.until_event("checkpoint_missing", 60)
        watch.until(lambda u: u.get("event", {}).get("state") == "RUNNING" and u["event"]["kind"] == "state_changed", 60,
                    "it runs again")
        patient.cli("pause", job)  # later checkpoints would make room for themselves
        watch.until_state("PAUSED")
    assert checkpoints(patient, job)[newest["name"]]["state"] == "MISSING"
    assert patient.json("get", job)["attempts"][-1]["from_checkpoint"] == kept[1]["name"]
    done = patient.cli("checkpoint", "verify", newest["name"], status=1)
    assert "MISSING" in done.stdout and "No such file" in done.stdout, done.stdout
    pathlib.Path(f"{folder}.away").rename(folder)
    done = patient.cli("checkpoint", "verify", newest["name"])
    assert done.stdout == f"{newest['name']} COMMITTED: all bytes are those that were written\n"
    row = checkpoints(patient, job)[newest["name"]]
    assert row["state"] == "COMMITTED" and not row.get("reason") and "unreadable_time" not in row
    patient.cli("cancel", job)
    patient.wait_end(job, "CANCELLED")


def test_verify_tells_wrong_bytes_and_takes_it_back_when_they_are_right_again(service, tiny):
    job, kept = stopped_with_two(service, tiny(steps=100000, every=10))
    newest, path = kept[0]["name"], pathlib.Path(kept[0]["directory"]) / "rank-0.safetensors"
    good = path.read_bytes()
    path.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    done = service.cli("checkpoint", "verify", newest, status=1)
    assert done.stdout.startswith(f"{newest} CORRUPT: ") and "rank-0.safetensors" in done.stdout, done.stdout
    assert checkpoints(service, job)[newest]["state"] == "CORRUPT"
    path.write_bytes(good)
    assert "COMMITTED" in service.cli("checkpoint", "verify", newest).stdout
    assert [e["kind"] for e in service.json("events", job)["events"] if "by a user" in e["message"]] == \
        ["checkpoint_corrupt", "checkpoint_verified"]
    done = service.cli("checkpoint", "verify", f"jobs/{job}/checkpoints/999", status=4)
    assert "does not exist" in done.stderr
    service.cli("cancel", job)
    service.wait_end(job, "CANCELLED")


def test_a_job_none_of_whose_checkpoints_can_be_read_fails_and_does_not_begin_again(patient, tiny):
    job, kept = stopped_with_two(patient, tiny(steps=100000, every=10, checkpoint__keep_last=2))
    folders = [pathlib.Path(c["directory"]) for c in kept]
    for folder in folders:
        folder.rename(f"{folder}.away")
    patient.cli("resume", job)
    ended = patient.wait_end(job, "FAILED")
    assert f"trainyard checkpoint verify {kept[0]['name']}" in ended["reason"], ended["reason"]
    for folder in folders:
        pathlib.Path(f"{folder}.away").rename(folder)
    patient.cli("checkpoint", "verify", kept[0]["name"])
    with patient.watch(job) as watch:
        patient.cli("retry", job)
        watch.until(lambda u: u.get("event", {}).get("state") == "RUNNING" and u["event"]["kind"] == "state_changed", 60,
                    "it runs again")
    assert patient.json("get", job)["attempts"][-1]["from_checkpoint"] == kept[0]["name"]
    patient.cli("cancel", job)
    patient.wait_end(job, "CANCELLED")
