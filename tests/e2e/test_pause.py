"""A job that its user pauses leaves its slots and comes back to where it was, to the bit."""

import re

ENDLESS = 1_000_000


def pause(service, watch, job):
    """Pauses a job that runs; the step that it is paused after."""
    assert service.cli("pause", job).stdout in (f"{job} PAUSING\n", f"{job} PAUSED\n")  # by the time of the answer
    message = watch.until_state("PAUSED")["message"]
    after = re.fullmatch(r"paused by its user after step (\d+)", message)
    assert after, message
    return int(after[1])


def test_a_paused_job_gives_its_slots_away_and_has_the_bits_of_one_that_was_never_paused(shared_service, tiny):
    def spec(steps):
        return tiny(steps=steps, data=2, every=0, retry__max_restarts=0,
                    train__learning_rate_schedule={"constant": {"warmup_steps": 5}})  # does not look at the last step

    job = shared_service.submit(spec(ENDLESS))
    with shared_service.watch(job) as watch:
        watch.until_step(10)
        first = pause(shared_service, watch, job)
        assert first >= 10
        other = shared_service.submit(tiny(steps=10, data=2))  # both slots
        shared_service.wait_end(other)
        assert shared_service.json("get", job)["state"] == "PAUSED"
        assert shared_service.cli("list", "--state", "PAUSED", "-o", "name").stdout == f"jobs/{job}\n"
        assert shared_service.cli("resume", job).stdout.startswith(f"{job} ")
        watch.until_step(first + 10)
        done = shared_service.cli("pause", job, "--wait")
        second = int(re.search(r"^paused by its user after step (\d+)$", done.stderr, re.M)[1])
        assert done.stdout == f"{job} PAUSED\n"
    paused = shared_service.json("get", job)
    assert [int(a.get("from_step", 0)) for a in paused["attempts"]] == [0, first], "no step is done twice"
    assert int(paused.get("restarts", 0)) == 0 and not paused.get("weights_sha256"), "those of its last step"
    assert sorted(shared_service.metric(job, "loss")) == list(range(1, second + 1)), "every step's loss is there once"
    written = {int(c["step"]): c for c in shared_service.json("checkpoints", job)["checkpoints"]}
    assert written[second]["state"] == "COMMITTED"
    whole = shared_service.wait_end(shared_service.submit(spec(second)))
    assert whole["weights_sha256"] == written[second]["weights_sha256"]
    assert shared_service.cli("cancel", job).stdout == f"{job} CANCELLED\n"


def test_a_job_that_waits_is_paused_at_once_and_others_pass_it(shared_service, tiny):
    runs = shared_service.submit(tiny(steps=ENDLESS, data=2))
    with shared_service.watch(runs) as watch:
        watch.until_step(1)
        waits, behind = shared_service.submit(tiny(steps=30, data=2)), shared_service.submit(tiny(steps=30, data=2))
        assert shared_service.cli("pause", waits).stdout == f"{waits} PAUSED\n"
        assert "is PAUSED: until its user resumes it" in shared_service.cli("explain", waits).stdout
    shared_service.cli("cancel", runs)
    passed = shared_service.wait_end(behind)
    assert shared_service.json("get", waits)["state"] == "PAUSED"
    shared_service.cli("resume", waits)
    resumed = shared_service.wait_end(waits)
    assert resumed["attempt"] == 1 and resumed["weights_sha256"] == passed["weights_sha256"]


def test_a_pause_or_resume_that_cannot_be_is_refused_with_the_reason(shared_service, tiny):
    job = shared_service.submit(tiny(steps=3))
    shared_service.wait_end(job)
    assert "is SUCCEEDED: it cannot be paused" in shared_service.cli("pause", job, status=1).stderr
    assert "is SUCCEEDED: only a PAUSED job is resumed" in shared_service.cli("resume", job, status=1).stderr
    assert "does not exist" in shared_service.cli("pause", 999999, status=4).stderr
    paused = shared_service.submit(tiny(steps=3, data=4))  # more than there is
    shared_service.cli("pause", paused)
    assert "is already paused" in shared_service.cli("pause", paused, status=1).stderr
    assert "PAUSED" in shared_service.cli("delete", paused, status=1).stderr
    assert "is not FAILED" in shared_service.cli("retry", paused, status=1).stderr
    shared_service.cli("cancel", paused)
    shared_service.cli("delete", paused)
