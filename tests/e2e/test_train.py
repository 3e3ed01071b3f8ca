"""trainyard-train, without a service: what its steps look like to a program."""

import json
import re
import resource
import subprocess

from service_fixture import BIN


def test_each_step_is_an_object_of_json_although_a_norm_is_infinite(tiny):
    spec = tiny(steps=12, train__precision="fp16", train__loss_scale={"initial": 16777216})
    done = subprocess.run([BIN / "trainyard-train", "-", "--json", "--threads", "1"], input=json.dumps(spec), text=True,
                          capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr

    def refuse(word):
        raise AssertionError(f"{word} is not JSON")
    steps = [json.loads(line, parse_constant=refuse) for line in done.stdout.splitlines()]
    assert [step["step"] for step in steps] == list(range(1, 13))
    assert any(step["grad_norm"] is None for step in steps), "no step overflowed"
    assert steps[-1]["skipped_steps"] == sum(step["grad_norm"] is None for step in steps)


def test_each_step_tells_what_rank_0_has_waited_for_and_the_memory_that_its_plan_takes(tiny):
    def output(stages, *arguments):
        spec = tiny(steps=3, parallel__pipeline=stages)
        done = subprocess.run([BIN / "trainyard-train", *arguments, "--json", "--threads", "1"], input=json.dumps(spec),
                              text=True, capture_output=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout
    for stages in (1, 2):  # the first one waits for what goes back from the last
        steps = [json.loads(line) for line in output(stages, "-").splitlines()]
        [planned, *_] = json.loads(output(stages, "plan", "-", "--device", "cpu"))["memory"]
        assert [step["step"] for step in steps] == [1, 2, 3]
        assert {step["arena_bytes"] for step in steps} == {int(planned["bytes"])}
        assert all(0 <= step["data_wait_seconds"] < step["step_seconds"] for step in steps)
        assert all(0 <= step["data_read_seconds"] <= step["data_wait_seconds"] for step in steps)
        assert all((step["communication_wait_seconds"] > 0) == (stages == 2) for step in steps)
        assert all(step["memory_bytes"] > step["arena_bytes"] and step["checkpoint_stall_seconds"] == 0 for step in steps)


def test_a_sample_of_a_checkpoint_that_is_not_there_is_one_sentence_and_no_text(tmp_path):
    done = subprocess.run([BIN / "trainyard-train", "sample", tmp_path / "step-1"], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)


def test_auto_that_fails_by_its_checkpoint_is_no_wrong_spec(tiny, tmp_path):
    def code(spec, *arguments):
        return subprocess.run([BIN / "trainyard-train", "-", *arguments], input=json.dumps(spec), text=True,
                              capture_output=True, timeout=300).returncode
    spec = tiny(steps=2)
    spec["train"]["micro_batch"] = "auto"
    del spec["train"]["lanes"]
    assert code(spec) == 2, "auto needs memory_bytes"
    spec["resources"] = {"memory_bytes": 1 << 30}
    assert code(spec, "--resume", tmp_path / "gone") == 1


def test_a_run_that_resumes_keeps_the_cut_of_its_checkpoint_where_the_spec_leaves_it_open(tiny, tmp_path):
    """As after an update to a release with another default."""
    def weights(spec, *arguments):
        done = subprocess.run([BIN / "trainyard-train", "-", "--threads", "1", *arguments], input=json.dumps(spec), text=True,
                              capture_output=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return re.findall(r"step-4 \(weights_sha256 ([0-9a-f]{64})\)", done.stderr)[-1]
    written = tiny(steps=4, every=2)
    whole = weights(written, "--checkpoints", tmp_path / "whole")
    left_out = {**written, "train": {k: v for k, v in written["train"].items() if k not in ("micro_batch", "lanes")}}
    assert weights(left_out, "--checkpoints", tmp_path / "default") != whole, "the default cuts as the spec does"
    assert weights(left_out, "--checkpoints", tmp_path / "resumed", "--resume", tmp_path / "whole/step-2") == whole


def test_ranks_that_cannot_meet_have_failed_and_no_status_of_their_own(tiny):
    done = subprocess.run([BIN / "trainyard-train", "-", "--threads", "1"], input=json.dumps(tiny(steps=2, data=2)), text=True,
                          capture_output=True, timeout=300,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64)))
    assert done.returncode == 1, done.stderr
    assert "open files, but this host allows a process 64: raise LimitNOFILE" in done.stderr


def test_workers_and_prefetch_change_the_planned_memory_and_no_bits(tiny):
    def output(loader, *arguments):
        spec = tiny(steps=5)
        spec["data"] |= loader
        done = subprocess.run([BIN / "trainyard-train", *arguments, "--json", "--threads", "1"], input=json.dumps(spec),
                              text=True, capture_output=True, timeout=300)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def batches(loader):
        [planned, *_] = json.loads(output(loader, "plan", "-", "--device", "cpu"))["memory"]
        return {family["name"]: int(family["bytes"]) for family in planned["host"]}["batches"]
    one = batches({"prefetch": 13}) - batches({"prefetch": 12})
    assert one > 0
    assert batches({}) == batches({"prefetch": 3}) == batches({"workers": 2})
    assert batches({"workers": 13}) == batches({"prefetch": 13}) == batches({}) + 10 * one
    losses = {tuple(json.loads(line)["loss"] for line in output(loader, "-").splitlines())
              for loader in ({}, {"workers": 1, "prefetch": 1}, {"workers": 9}, {"workers": 2, "prefetch": 64})}
    assert len(losses) == 1
