"""Where the time of ranks went: the causes add up to wall time times ranks, whatever was killed meanwhile."""

import csv
import datetime
import io
import os
import signal

import pytest

CAUSES = ("start", "data", "compute", "waiting", "checkpoint", "repeated", "idle")
ENDLESS = 1_000_000


def seconds(time):
    return datetime.datetime.fromisoformat(time.replace("Z", "+00:00")).timestamp()


def total(of):
    return sum(of[cause] for cause in CAUSES)


def rank_seconds(service, job, attempt):
    answer = service.json("metrics", job, "--rank-seconds", "--attempt", attempt)
    return answer, {int(rank.get("rank", 0)): rank["sum"] for rank in answer["ranks"]}


def judged(service, job):
    """The sums of each attempt of an ended job, oldest first, after they were compared with the times that `get` shows."""
    ended, found = service.json("get", job), []
    for attempt in ended["attempts"]:
        number, ranks = int(attempt["number"]), len(attempt["placements"])
        answer, by_rank = rank_seconds(service, job, number)
        of = answer["attempts"][number - 1]
        wall = seconds(attempt["end_time"]) - seconds(attempt["create_time"])
        assert (int(of["attempt"]), int(of["ranks"]), sorted(by_rank)) == (number, ranks, list(range(ranks)))
        assert of["wall_seconds"] == pytest.approx(wall, rel=0.001)
        assert total(of["sum"]) == pytest.approx(wall * ranks, rel=0.001), f"attempt {number}: {of}"
        for rank in by_rank.values():
            assert total(rank) == pytest.approx(wall, rel=0.001)
            assert min(rank[cause] for cause in CAUSES) >= 0
        found.append(of["sum"])
    for cause in CAUSES:
        assert answer["total"][cause] == pytest.approx(sum(of[cause] for of in found), abs=1e-6)
    return found


def rows_of(service, job, rank):
    """{step: {metric: value, "time": when the rank reported it}} of the newest attempt."""
    found = {}
    for row in csv.DictReader(io.StringIO(service.cli("export", job, "--csv", "-").stdout)):
        if int(row["rank"]) == rank and row["metric"].endswith(("_wait_seconds", "_stall_seconds")):
            step = found.setdefault(int(row["step"]), {"time": seconds(row["time"])})
            step[row["metric"]] = float(row["value"])
    return found


def kill(pid):
    os.kill(pid, signal.SIGKILL)


def test_the_causes_of_a_run_are_those_that_its_ranks_measured(shared_service, tiny):
    job = shared_service.submit(tiny(steps=300, data=2, every=50, width=64))
    shared_service.wait_end(job)
    [of] = judged(shared_service, job)
    _, by_rank = rank_seconds(shared_service, job, 1)
    for rank, is_ in by_rank.items():
        rows = rows_of(shared_service, job, rank)
        def measured(name):
            return sum(row[name] for row in rows.values())
        assert is_["data"] == pytest.approx(measured("data_wait_seconds"), abs=0.001)
        assert is_["waiting"] == pytest.approx(measured("communication_wait_seconds"), abs=0.002)
        assert is_["checkpoint"] > measured("checkpoint_stall_seconds"), "the last checkpoint is written after the last step"
        trained = max(row["time"] for row in rows.values()) - min(row["time"] for row in rows.values())
        steps = is_["data"] + is_["compute"] + is_["waiting"] + measured("checkpoint_stall_seconds")
        assert trained < steps + 0.01, "from the first report on"
        assert is_["start"] > 0 and is_["repeated"] == 0
    table = shared_service.cli("get", job).stdout
    assert "CHECKPOINT  REPEATED  IDLE\n1        2" in table, table
    assert f"{of['start']:.1f}s" in table


def test_steps_are_repeated_after_a_kill_and_only_those(shared_service, tiny):
    job = shared_service.submit(tiny(steps=1500, data=2, every=0, width=64))
    with shared_service.watch(job) as watch:
        seen = int(watch.until_step(150)["progress"]["step"])
        kill(shared_service.worker_pids(job)[1][0])
    assert shared_service.wait_end(job)["attempt"] == 2
    first, second = judged(shared_service, job)
    assert first["repeated"] == 0 and first["compute"] > 0
    assert second["compute"] > 0, "the steps behind the kill"
    _, by_rank = rank_seconds(shared_service, job, 2)
    for rank, is_ in by_rank.items():
        rows = rows_of(shared_service, job, rank)
        assert rows[seen]["time"] - rows[1]["time"] < is_["repeated"] < rows[1500]["time"] - rows[1]["time"]


@pytest.mark.parametrize("target", ["executor", "controller", "postgres"])
def test_the_sum_holds_when_a_part_of_the_service_is_killed(shared_service, tiny, target):
    job = shared_service.submit(tiny(steps=1500, data=2, every=100, width=64))
    with shared_service.watch(job) as watch:
        watch.until_step(120)
        kill(shared_service.postmaster_pid() if target == "postgres" else shared_service.pid_of(f"trainyard-{target}"))
    ended = shared_service.wait_end(job, timeout_s=180)
    found = judged(shared_service, job)
    assert len(found) == int(ended["attempt"]) >= (2 if target == "executor" else 1)
    assert found[0]["compute"] > 0


def test_a_pause_belongs_to_no_attempt_and_repeats_nothing(shared_service, tiny):
    job = shared_service.submit(tiny(steps=ENDLESS, data=2, every=0, width=64))
    with shared_service.watch(job) as watch:
        watch.until_step(50)
        shared_service.cli("pause", job, "--wait")
        step = int(shared_service.json("get", job)["step"])
        other = shared_service.submit(tiny(steps=100, data=2))
        shared_service.wait_end(other)
        shared_service.cli("resume", job)
        watch.until_step(step + 50)
    shared_service.cli("cancel", job)
    ended = shared_service.wait_end(job, "CANCELLED")
    first, second = judged(shared_service, job)
    assert first["repeated"] == second["repeated"] == 0 < min(first["checkpoint"], second["compute"])
    between = seconds(ended["attempts"][1]["create_time"]) - seconds(ended["attempts"][0]["end_time"])
    whole = seconds(ended["end_time"]) - seconds(ended["attempts"][0]["create_time"])
    assert between > 0
    assert (total(first) + total(second)) / 2 < whole - between + 0.5


def test_a_job_that_waits_for_slots_uses_no_rank_seconds(shared_service, tiny):
    runs = shared_service.submit(tiny(steps=ENDLESS, data=2))
    with shared_service.watch(runs) as watch:
        watch.until_step(1)
    waits = shared_service.submit(tiny(steps=20, data=2))
    answer = shared_service.json("metrics", waits, "--rank-seconds")
    assert not answer.get("attempts") and total(answer["total"]) == 0
    running, _ = rank_seconds(shared_service, runs, 1)
    assert total(running["total"]) == pytest.approx(2 * running["attempts"][0]["wall_seconds"], rel=0.001), "until now"
    shared_service.cli("cancel", runs)
    ended = shared_service.wait_end(waits)
    [of] = judged(shared_service, waits)
    assert total(of) / 2 < seconds(ended["end_time"]) - seconds(ended["attempts"][0]["create_time"]) + 0.5


def test_a_program_starts_computes_and_repeats(shared_service):
    """Its first attempt dies after step 3; the second one begins again."""
    script = """
      sleep 0.5
      for i in 1 2 3 4 5; do
        echo "{\\"step\\": $i, \\"loss\\": 1}" >> "$TRAINYARD_METRICS"
        sleep 0.4
        if [ "$TRAINYARD_ATTEMPT" = 1 ] && [ $i = 3 ]; then kill -9 $$; fi
      done"""
    job = shared_service.submit({"name": "program", "program": {"command": ["sh", "-c", script]},
                                 "parallel": {"data": 2}})
    assert shared_service.wait_end(job)["attempt"] == 2
    first, second = judged(shared_service, job)
    slept = 2 * 0.4 * 0.95  # of 2 ranks; the clock that stamps a line may read it late
    for of in (first, second):
        assert of["start"] > 2 * 0.5, "until the first metric"
        assert of["data"] == of["waiting"] == of["checkpoint"] == 0, "nobody knows"
    assert first["repeated"] == 0 and first["compute"] > 2 * slept
    assert second["repeated"] > 2 * slept and second["compute"] > 2 * slept


def test_wrong_use_is_refused_and_a_deleted_job_has_none(shared_service, tiny):
    job = shared_service.submit(tiny(steps=3))
    shared_service.wait_end(job)
    assert "has no attempt 2" in shared_service.cli("metrics", job, "--rank-seconds", "--attempt", 2, status=4).stderr
    assert "only with --rank-seconds" in shared_service.cli("metrics", job, "--attempt", 1, status=2).stderr
    assert "do not apply" in shared_service.cli("metrics", job, "loss", "--rank-seconds", status=2).stderr
    shared_service.cli("delete", job)
    assert "does not exist" in shared_service.cli("metrics", job, "--rank-seconds", status=4).stderr
