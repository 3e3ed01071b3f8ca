"""PostgreSQL is put back to a backup while a job runs: the job ends, with all of its metrics where the executor's spool
still has them, else with an event that tells what is lost; nothing waits for ever, and a controller that led before the
restore writes nothing after it."""

import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess

from service_fixture import BIN, PATIENCE, descendants, process_start_time, wait_until


SLOW = {"layers": 4, "width": 64}  # some milliseconds a step


class Backup:
    """A copy of the service's cluster at one moment: its processes stand still meanwhile, so that the copy is what a
    power cut would leave."""

    def __init__(self, service):
        self.service = service
        self.cluster = service.directory / "postgres"
        self.copy = service.directory / "backup"
        postmaster = service.postmaster_pid()
        frozen = [postmaster, *descendants(postmaster)]
        for pid in frozen:
            os.kill(pid, signal.SIGSTOP)
        try:
            subprocess.run(["cp", "-a", f"{self.cluster}/.", self.copy], check=True)
        finally:
            for pid in reversed(frozen):
                os.kill(pid, signal.SIGCONT)

    def restore(self):
        """In the place of the cluster, which `up` starts again: it finds the folder, not its files, changed."""
        up, postmaster = self.service.up.pid, self.service.postmaster_pid()
        ended = {pid: process_start_time(pid) for pid in [postmaster, *descendants(postmaster)]}
        os.kill(up, signal.SIGSTOP)
        try:
            for pid in ended:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            wait_until(lambda: all(process_start_time(pid) != start for pid, start in ended.items()), 10, "PostgreSQL's end")
            for path in self.cluster.iterdir():
                shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
            subprocess.run(["cp", "-a", f"{self.copy}/.", self.cluster], check=True)
        finally:
            os.kill(up, signal.SIGCONT)


def log_of(service, program="controller"):
    return "".join(path.read_text() for path in sorted((service.directory / "logs").glob(f"{program}.log*")))


def conninfo_of(service):
    line = next(line for line in descendants(service.up.pid).values() if "trainyard-controller --database" in line)
    return re.search("host=[^ ]+ user=trainyard dbname=[^ ]+", line)[0]


def sql(conninfo, text):
    psql = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/psql"))[-1]
    return subprocess.run([psql, "-XAtq", "-d", conninfo, "-c", text], check=True, text=True, capture_output=True,
                          timeout=60 * PATIENCE).stdout.strip()


def ranks_of(service, job):
    """Found while it starts, so that they can be stopped at once later."""
    with service.watch(job) as watch:
        watch.until_step(1)
    return [pid for pid, _ in service.worker_pids(job).values()]


@contextlib.contextmanager
def standing_still(pids):
    """Ranks, so that their job does not end before the test has done what it does to it."""
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


def steps_of(service, job, name="loss"):
    return sorted(service.metric(job, name))


def events(service, job, kind):
    """Their messages."""
    return [event["message"] for event in service.json("events", job)["events"] if event["kind"] == kind]


def test_a_job_whose_database_was_set_back_ends_with_all_its_metrics(service, tiny):
    steps = 1500
    job = service.submit(tiny(steps=steps, data=2, every=100, **SLOW))
    ranks = ranks_of(service, job)
    with standing_still(ranks):
        backup = Backup(service)
    with service.watch(job) as watch:
        watch.until_event("checkpoint_committed")
        watch.until_step(250)
        with standing_still(ranks):
            backup.restore()
    ended = service.wait_end(job)
    assert ended["attempt"] == 1 and int(ended.get("records_lost", 0)) == 0, ended
    for rank in (0, 1):
        assert sorted(service.metric(job, "memory_bytes", rank)) == list(range(1, steps + 1))
    assert steps_of(service, job) == list(range(1, steps + 1))
    assert " leadership_lost " in log_of(service) and "restored from a backup" in log_of(service)


def test_a_job_that_had_ended_after_the_backup_is_run_again_to_the_same_weights(service, tiny):
    steps = 1000
    spec = tiny(steps=steps, every=100, checkpoint__keep_last=20, **SLOW)
    job = service.submit(spec)
    ranks = ranks_of(service, job)
    with standing_still(ranks):
        backup = Backup(service)
    first = service.wait_end(job)
    later = service.submit(tiny(steps=5))
    service.wait_end(later)
    backup.restore()
    again = service.wait_end(job)
    assert again["weights_sha256"] == first["weights_sha256"]
    assert again["attempt"] == 2, again
    assert steps_of(service, job) == list(range(1, steps + 1))
    service.cli("get", later, status=4)  # it was never submitted, for this database


def test_a_job_can_be_cancelled_after_the_database_was_set_back(service, tiny):
    job = service.submit(tiny(steps=1000000, data=2, every=50))
    with service.watch(job) as watch:
        watch.until_step(20)
    backup = Backup(service)
    with service.watch(job) as watch:
        watch.until_step(200)
    workers = service.worker_pids(job)
    backup.restore()
    service.cli("cancel", job)
    service.wait_end(job, "CANCELLED")
    wait_until(lambda: all(process_start_time(pid) != start for pid, start in workers.values()), 30, "its workers' end")


def answers(conninfo):
    with contextlib.suppress(subprocess.CalledProcessError):
        return sql(conninfo, "SELECT 1")


@contextlib.contextmanager
def executor_with_a_small_spool(service):
    """In the place of the service's own, which is drained."""
    service.cli("drain", service.json("executors")["executors"][0]["name"])
    log = open(service.directory / "small.log", "wb")
    executor = subprocess.Popen(
        [BIN / "trainyard-executor", "--controller", service.address, "--directory", service.directory / "small",
         "--slots", "2", "--spool-mib", "1", "--data-root", "/", "--checkpoint-root", service.directory / "checkpoints"],
        stdout=log, stderr=log, env=service.environment())
    try:
        yield
        executor.send_signal(signal.SIGTERM)
        assert executor.wait(60 * PATIENCE) == 0
    finally:
        executor.kill()
        executor.wait()
        log.close()


def test_what_no_spool_has_any_more_is_told_by_the_job(service, tiny):
    """Rows of many names fill what the spool keeps of acknowledged records: a quarter of 1 MiB."""
    steps = 2000
    with executor_with_a_small_spool(service):
        job = service.submit(tiny(steps=steps, every=400, train__inspect={"gradients_every": 1}, checkpoint__keep_last=20,
                                  **SLOW))
        ranks = ranks_of(service, job)
        with standing_still(ranks):
            backup = Backup(service)
        with service.watch(job) as watch:
            watch.until_step(1000)
            with standing_still(ranks):
                backup.restore()
        ended = service.wait_end(job)
        lost = int(ended["records_lost"])
        assert lost > 100 and ended["attempt"] == 1, ended
        stored = set(steps_of(service, job))
        missing = [step for step in range(1, steps + 1) if step not in stored]
        assert missing and missing == list(range(missing[0], missing[-1] + 1)), "one gap"
        told = events(service, job, "records_lost")
        assert len(told) == 1 and told[0].startswith(f"{lost} records of rank 0 "), told
        first, last = map(int, re.search("metrics of steps ([0-9]+) to ([0-9]+) are missing", told[0]).groups())
        assert first in (missing[0] - 1, missing[0]) and last in (missing[-1], missing[-1] + 1), (told, missing)
        assert f"{lost} records" in service.cli("get", job).stdout
        assert f"{lost} of its records" in service.cli("explain", job).stdout
        assert f"{lost} records" in service.cli("metrics", job, "loss").stderr


def test_a_controller_that_led_before_the_restore_writes_nothing_after_it(service, tiny):
    """Its epoch's number comes again: the backup is from before its election."""
    job = service.submit(tiny(steps=1000000, data=2, every=100))
    conninfo = conninfo_of(service)
    with service.watch(job) as watch:
        watch.until_step(20)
    backup = Backup(service)
    first = service.pid_of("trainyard-controller")
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: log_of(service).count(" leading ") == 2, 30, "its successor")
    with service.watch(job) as watch:
        watch.until_step(200)
    old = service.pid_of("trainyard-controller")
    start = process_start_time(old)
    os.kill(old, signal.SIGSTOP)
    backup.restore()
    wait_until(lambda: answers(conninfo), 60, "PostgreSQL")
    before = sql(conninfo, "SELECT sequence FROM rank_sequence")
    with open(service.directory / "second.log", "wb") as log:
        second = subprocess.Popen([BIN / "trainyard-controller", "--database", conninfo, "--listen", "127.0.0.1:0",
                                   "--checkpoints", service.directory / "checkpoints"],
                                  stdout=subprocess.PIPE, stderr=log, env=service.environment(), text=True)
    try:
        assert second.stdout.readline().startswith("ready ")
        assert sql(conninfo, "SELECT epoch FROM leader") == "2", "the old one's number"
        os.kill(old, signal.SIGCONT)  # what the ranks have reported since waits in its sockets
        wait_until(lambda: process_start_time(old) != start, 10, "the old controller's end")
        assert sql(conninfo, "SELECT sequence FROM rank_sequence") == before
        assert sql(conninfo, "SELECT epoch FROM leader") == "2"
    finally:
        second.kill()
        second.wait()
        second.stdout.close()
    # The executor has obeyed an election that the database does not know. The old one's next start takes it nevertheless.
    step = int(service.json("get", job)["step"])
    with service.watch(job) as watch:
        watch.until_step(step + 200)
    series = service.series(job, "loss")
    assert int(series["points"]) == int(series["last_step"]), "every step is there once"
    service.cli("cancel", job)
    service.wait_end(job, "CANCELLED")
