"""The main route: submit, gang, train, watch, checkpoint, end; and what a person then reads back."""

import json
import subprocess
import sys

import pytest

from service_fixture import BIN, ROOT, wait_until


def recomputed_sha256(directory):
    """weights_sha256 from the safetensors files alone, by a program that shares no code with ours."""
    return subprocess.run([sys.executable, ROOT / "tests/engine/weights_sha256.py", directory],
                          capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.sanitized
def test_a_job_goes_from_submit_to_succeeded_on_two_ranks(service, tiny):
    job = service.submit(tiny(steps=40, data=2))
    ended = service.wait_end(job)
    assert ended["attempt"] == 1 and int(ended["step"]) == 40
    attempt = ended["attempts"][0]
    assert [int(p.get("rank", 0)) for p in attempt["placements"]] == [0, 1]

    loss = service.metric(job, "loss")
    assert sorted(loss) == list(range(1, 41)), "each step's loss is there once"
    assert loss[40] < loss[1]
    for name in ("learning_rate", "grad_norm", "tokens_per_second", "step_seconds"):
        assert len(service.metric(job, name)) == 40, name
    for rank in (0, 1):
        assert service.metric(job, "memory_bytes", rank), "each rank tells its own"
    assert 40 in service.metric(job, "validation_loss"), "evaluated after the last step"

    states = [e["state"] for e in service.json("events", job)["events"]]
    order = [s for i, s in enumerate(states) if i == 0 or states[i - 1] != s]
    assert order == ["QUEUED", "STARTING", "RUNNING", "SUCCEEDED"]
    numbers = [int(e["number"]) for e in service.json("events", job)["events"]]
    assert numbers == list(range(1, len(numbers) + 1)), "events are numbered without a gap"


def test_the_weights_digest_is_recomputed_from_the_files_alone(service, tiny):
    job = service.submit(tiny(steps=20, data=2))
    ended = service.wait_end(job)
    newest = service.json("checkpoints", job)["checkpoints"][0]
    assert newest["state"] == "COMMITTED" and int(newest["step"]) == 20
    assert ended["weights_sha256"] == newest["weights_sha256"] == recomputed_sha256(newest["directory"])


def test_retention_keeps_the_newest_three_and_removes_the_files_of_the_others(service, tiny):
    """However slowly a disk writes them: the job runs until more were made than are kept."""
    job = service.submit(tiny(steps=1_000_000, every=20))
    with service.watch(job) as watch:
        for _ in range(5):
            watch.until_event("checkpoint_committed")
    service.cli("cancel", job)
    service.wait_end(job, "CANCELLED")
    directory = service.directory / "checkpoints"
    wait_until(lambda: len(list(directory.glob("*/attempt-*/step-*"))) == 3, 60, "older step folders removed")
    made = [e for e in service.json("events", job)["events"] if e["kind"] == "checkpoint_committed"]
    kept = [c for c in service.json("checkpoints", job)["checkpoints"] if c["state"] == "COMMITTED"]
    assert [int(c["step"]) for c in kept] == sorted((int(e["message"].split()[1]) for e in made[-3:]), reverse=True)


def test_the_final_checkpoint_is_never_skipped(service, tiny):
    """Steps come faster than checkpoints can be written: others are skipped."""
    job = service.submit(tiny(steps=1000, every=1))
    service.wait_end(job)
    steps = [int(c["step"]) for c in service.json("checkpoints", job)["checkpoints"]]
    assert steps[0] == 1000 and len(steps) < 1000


def test_the_same_request_id_stores_one_job(shared_service, tiny):
    request = "3f0c1c9e-6d3b-4c39-9b3e-1f0e2f7d7c01"
    first = shared_service.submit(tiny(steps=1), "--request-id", request)
    second = shared_service.submit(tiny(steps=1), "--request-id", request)
    assert first == second
    path = shared_service.directory / "submitted.json"
    path.write_text(json.dumps(tiny(steps=2)))
    done = shared_service.cli("submit", path, "--request-id", request, status=1)
    assert f"made jobs/{first} of another spec" in done.stderr, done.stderr
    shared_service.wait_end(first)


def test_a_watch_resumes_after_the_event_that_it_saw_last(shared_service, tiny):
    job = shared_service.submit(tiny(steps=5))
    shared_service.wait_end(job)
    all_events = shared_service.json("events", job)["events"]
    with shared_service.watch(job) as watch:
        assert watch.process.wait(30) == 0
        seen = [json.loads(line) for line in watch.process.stdout]
    assert [u["event"]["number"] for u in seen if "event" in u] == [e["number"] for e in all_events]
    assert seen[-1]["job"]["state"] == "SUCCEEDED"


def test_logs_are_kept_and_followed(shared_service, tiny):
    job = shared_service.submit(tiny(steps=5, data=2))
    shared_service.wait_end(job)
    done = shared_service.cli("logs", job, "-f")
    assert done.stdout.strip(), "the workers' own lines"
    only = shared_service.cli("logs", job, "--rank", "1")
    assert len(only.stdout.splitlines()) < len(done.stdout.splitlines())


def test_a_checkpoint_is_sampled_with_its_own_tokenizer(shared_service, tiny, text_file):
    job = shared_service.submit(tiny(steps=60))
    shared_service.wait_end(job)
    first = shared_service.cli("sample", job, "--prompt", "The ", "--tokens", "40", "--seed", "3").stdout
    again = shared_service.cli("sample", job, "--prompt", "The ", "--tokens", "40", "--seed", "3").stdout
    other = shared_service.cli("sample", job, "--prompt", "The ", "--tokens", "40", "--seed", "4").stdout
    assert first == again and first != other, "the seed decides"
    assert set(first) <= set(text_file.read_text()), "only characters of the training text"


def test_a_plot_is_drawn_in_the_terminal(shared_service, tiny):
    job = shared_service.submit(tiny(steps=30))
    shared_service.wait_end(job)
    drawn = shared_service.cli("metrics", job, "loss", "--plot").stdout
    assert "loss" in drawn and len(drawn.splitlines()) >= 5


def test_jobs_wait_for_slots_in_the_order_of_priority(service, tiny):
    first = service.submit(tiny(steps=1000000, data=2))
    with service.watch(first) as watch:
        watch.until_state("RUNNING")
        low = service.submit(tiny(steps=2, data=2))
        high = service.submit(tiny(steps=2, data=2, priority=5))
        assert service.json("get", low)["state"] == "QUEUED"
        service.cli("cancel", first)
    service.wait_end(first, "CANCELLED")
    started = [service.wait_end(job)["start_time"] for job in (high, low)]
    assert started == sorted(started), "the higher priority first, though submitted later"


def test_a_job_larger_than_every_host_together_waits_with_a_reason(service, tiny):
    job = service.submit(tiny(steps=2, data=4))
    listed = service.json("get", job)
    assert listed["state"] == "QUEUED"
    service.cli("cancel", job)
    service.wait_end(job, "CANCELLED")


def test_a_gang_spans_two_hosts(two_hosts, tiny):
    job = two_hosts.submit(tiny(steps=10, data=2))
    ended = two_hosts.wait_end(job)
    assert len({p["executor"] for p in ended["attempts"][0]["placements"]}) == 2


def test_executors_are_listed_with_their_slots(shared_service):
    rows = shared_service.json("executors")["executors"]
    assert len(rows) == 1 and rows[0]["state"] == "ATTACHED" and rows[0]["slots"] == 2
    assert rows[0].get("reason"), "why there is no GPU"


def test_every_program_tells_its_version_and_an_example():
    for program in ("trainyard", "trainyard-controller", "trainyard-executor", "trainyard-worker", "trainyard-train"):
        for flag in ("--help", "--version"):
            done = subprocess.run([BIN / program, flag], capture_output=True, text=True)
            assert done.returncode == 0 and done.stdout.strip(), (program, flag, done.stderr)
        assert "xample" in subprocess.run([BIN / program, "--help"], capture_output=True, text=True).stdout, program
