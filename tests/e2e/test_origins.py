"""Jobs that begin with another job's checkpoint: forks, and weights alone."""

from service_fixture import wait_until


def finished(service, spec, *arguments):
    job = service.submit(spec, *arguments)
    return job, service.wait_end(job)


def test_a_fork_goes_on_from_the_others_state_to_the_same_bits(shared_service, tiny):
    whole, ended = finished(shared_service, tiny(steps=30, every=15))  # the first one is never skipped
    done = shared_service.cli("submit", "--fork", f"{whole}@15", "--name", "fork", "--set", "checkpoint.every=5")
    fork = done.stdout.strip()
    child = shared_service.wait_end(fork)
    assert child["display_name"] == "fork"
    assert child["weights_sha256"] == ended["weights_sha256"], "the same spec and state, the same weights"
    assert int(child["forked_step"]) == 15 and child["forked_from"].startswith(f"jobs/{whole}/checkpoints/")
    assert child["attempts"][0]["from_checkpoint"] == child["forked_from"]
    assert sorted(shared_service.metric(fork, "loss")) == list(range(16, 31)), "only its own steps"
    events = shared_service.json("events", fork)["events"]
    assert any(e["kind"] == "forked" and child["forked_from"] in e["message"] for e in events)
    assert child["forked_from"] in shared_service.cli("get", fork).stdout


def test_a_fork_with_another_rate_goes_its_own_way(shared_service, tiny):
    parent, ended = finished(shared_service, tiny(steps=20, every=10))
    fork = shared_service.cli("submit", "--fork", parent, "--set", "train.steps=25", "--set",
                              "train.optimizer.adamw.lr=0.0005").stdout.strip()
    child = shared_service.wait_end(fork)
    assert int(child["forked_step"]) == 20 and child["weights_sha256"] != ended["weights_sha256"]


def test_a_fork_with_another_optimizer_and_a_new_average_says_what_starts_anew(shared_service, tiny):
    parent, _ = finished(shared_service, tiny(steps=10, every=10))
    done = shared_service.cli("submit", "--fork", parent, "--set", "train.steps=15", "--set",
                              "train.optimizer.lion.lr=0.001", "--set", "train.ema.decay=0.9")
    fork = done.stdout.strip()
    shared_service.wait_end(fork)
    told = {e["kind"]: e["message"] for e in shared_service.json("events", fork)["events"]}
    assert told["optimizer_started"] == "the checkpoint's optimizer is adamw, not lion: the states of lion start from zero"
    assert "train.ema starts from its weights" in told["average_started"]


def test_a_fork_that_cannot_be_is_refused_with_the_reason(shared_service, tiny):
    parent, _ = finished(shared_service, tiny(steps=10, every=10))
    done = shared_service.cli("submit", "--fork", f"{parent}@7", status=4)
    assert "no committed checkpoint of step 7" in done.stderr, done.stderr
    done = shared_service.cli("submit", "--fork", parent, status=2)
    assert "not above the step 10" in done.stderr, done.stderr
    jobs = shared_service.json("list")["jobs"]
    changes = ["--set", "train.steps=20", "--set", "model.gpt.width=64", "--set", "data.text.validation_fraction=0.3"]
    refused = [shared_service.cli(command, "--fork", parent, *changes, status=2).stderr for command in ("submit", "validate")]
    assert refused[0] == refused[1] and len(refused[0].splitlines()) == 2
    assert f"--fork {parent}: model.gpt.width: 64, but job {parent} has 32: a fork keeps the model" in refused[0]
    assert f"data.text.validation_fraction: 0.3, but job {parent} has 0.1: a fork keeps the data" in refused[0]
    assert shared_service.json("list")["jobs"] == jobs, "no id was assigned"
    done = shared_service.cli("submit", "--fork", 999999, status=4)
    assert "jobs/999999 does not exist" in done.stderr, done.stderr


def committed(service, job):
    return [c["name"] for c in service.json("checkpoints", job)["checkpoints"] if c["state"] == "COMMITTED"]


def test_what_was_kept_for_a_fork_goes_with_it_though_the_parent_has_ended(shared_service, tiny):
    parent = shared_service.submit(tiny(steps=1_000_000_000, every=4000, checkpoint__keep_last=1))

    def fork_it():  # retention may be faster than the check of the fork on a host. It waits for the slot of its parent
        return shared_service.cli("submit", "--fork", parent, "--set", "train.steps=1000000000", "--set",
                                  "checkpoint.every=0", "--set", "parallel.data=2", status=None).stdout.strip()

    with shared_service.watch(parent) as watch:
        watch.until_event("checkpoint_committed")
        fork = wait_until(fork_it, 10, "a fork")
    origin = shared_service.json("get", fork)["forked_from"]
    newest = int(shared_service.json("checkpoints", parent)["checkpoints"][0]["step"])
    with shared_service.watch(parent) as watch:
        while int(watch.until_event("checkpoint_committed")["message"].split()[1]) <= newest:
            pass
    shared_service.cli("cancel", parent)
    shared_service.wait_end(parent, "CANCELLED")
    wait_until(lambda: len(committed(shared_service, parent)) == 2, 10, "the last one, and the one still needed")
    assert origin in committed(shared_service, parent)
    shared_service.cli("cancel", fork)
    shared_service.wait_end(fork, "CANCELLED")
    wait_until(lambda: origin not in committed(shared_service, parent), 10, "the checkpoint that nobody needs goes")
    assert len(committed(shared_service, parent)) == 1, "the last one stays"
