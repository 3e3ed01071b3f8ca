"""tests/gpu/run itself: what it skips, keeps, does again and reports. Its parts here need no device."""

import hashlib
import importlib.machinery
import importlib.util
import json
import math
import os
import pathlib
import select
import subprocess
import threading
import sys
import tarfile
import time

import pytest

PATH = pathlib.Path(__file__).resolve().parent / "run"


@pytest.fixture
def run(tmp_path, monkeypatch):
    loader = importlib.machinery.SourceFileLoader("gpu_run", str(PATH))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("gpu_run", loader))
    loader.exec_module(module)
    monkeypatch.setattr(module.host, "WORK", tmp_path / "work")
    monkeypatch.setattr(module.host, "REPORTS", tmp_path / "reports")
    monkeypatch.setattr(module.host, "why_no_gpu", lambda: None)
    monkeypatch.setattr(module.host, "BEGUN", time.monotonic())
    monkeypatch.setattr(module.kept, "ARCHIVE", None)
    monkeypatch.setattr(module.host, "PART", {"ends": math.inf})
    monkeypatch.setattr(module, "commit", lambda: "abc")
    return module


def parts_of(module, **parts):
    calls = []

    def part(name, result):
        def call():
            calls.append(name)
            if isinstance(result, Exception):
                raise result
            return result
        return call
    module.PARTS["correct"] = [(name, part(name, result)) for name, result in parts.items()]
    return calls


def test_without_a_device_every_part_is_a_skip_with_its_reason(run, capsys, monkeypatch):
    monkeypatch.setattr(run.host, "why_no_gpu", lambda: "no NVIDIA driver")
    calls = parts_of(run, a="well", b="well")
    assert run.main(["correct"], False) == 0
    assert capsys.readouterr().out == "1..2\nok 1 - a # SKIP no NVIDIA driver\nok 2 - b # SKIP no NVIDIA driver\n"
    assert not calls and not run.host.REPORTS.exists()


def test_what_is_done_stays_done_and_what_failed_is_tried_again(run, capsys):
    calls = parts_of(run, a="well", b=run.host.Failed("exit 1\nbecause"), c=run.host.Skip("no peer"))
    assert run.main(["correct"], False) == 1
    assert capsys.readouterr().out.splitlines() == ["1..3", "ok 1 - a: well", "not ok 2 - b", "# exit 1", "# because",
                                                    "ok 3 - c # SKIP no peer"]
    assert run.main(["correct"], False) == 1
    assert calls == ["a", "b", "c", "c", "b"]  # what has failed at this commit comes last
    report = (run.host.REPORTS / "correct.md").read_text()
    assert "| a | ok |" in report and "| b | failed |" in report and "| exit 1 |" in report


def test_another_commit_and_fresh_begin_anew(run, monkeypatch):
    calls = parts_of(run, a="well")
    run.main(["correct"], False)
    run.main(["correct"], True)
    monkeypatch.setattr(run, "commit", lambda: "def")
    run.main(["correct"], False)
    assert calls == ["a", "a", "a"]


def test_at_another_commit_what_had_failed_comes_first_and_what_was_done_last(run, monkeypatch):
    def parts(b):
        return parts_of(run, a="well", b=b, c="well", d="well")
    calls = parts(run.host.Failed("exit 1"))
    run.PARTS["correct"] = run.PARTS["correct"][:3]
    run.main(["correct"], False)
    monkeypatch.setattr(run, "commit", lambda: "def")
    calls = parts("well")
    run.PARTS["correct"][2] = ("c", run.host.takes(10**6, 10**6, run.PARTS["correct"][2][1]))
    assert run.main(["correct"], False) == 0 and calls == ["b", "d", "a"]
    report = (run.host.REPORTS / "correct.md").read_text()
    assert "| b | ok | 0.0 | def |" in report and "| c | ok | 0.0 | abc |" in report


def test_parts_are_done_in_the_order_of_what_they_tell_over_all_modes(run):
    calls = parts_of(run, a="well", b="well")
    run.PARTS["speed"] = [(name, lambda name=name: calls.append(name) or "well") for name in "cd"]
    run.ORDER[:] = ["d", "b"]
    run.main(["correct", "speed"], False)
    assert calls == ["d", "b", "a", "c"]


def test_the_order_names_parts_that_there_are_and_begins_with_gpt_2_at_full_size(run):
    names = [name for parts in run.PARTS.values() for name, _ in parts]
    assert len(set(names)) == len(names) and not set(run.ORDER) - set(names)
    assert run.ORDER[:6] == ["the machine", "GPT-2 124M, fast", "GPT-2 124M, reproducible", "GPT-2 124M in micro-batches",
                             "profiles of GPT-2 124M", "a step of GPT-2 124M"]


def test_every_part_has_a_limit_and_the_first_ones_fit_into_one_run(run):
    parts = {name: part for parts in run.PARTS.values() for name, part in parts}
    assert all(part.needs_s <= part.limit_s <= 400 for part in parts.values())
    assert sum(parts[name].needs_s for name in run.ORDER[:7]) < run.host.LIMIT_S


def test_a_part_that_hangs_costs_its_limit_and_no_more(run, capsys):
    run.PARTS["correct"] = [("a", run.host.takes(0, 1, lambda: run.host.run(["sleep", "1000"]))), ("b", lambda: "well")]
    assert run.main(["correct"], False) == 1
    out = capsys.readouterr().out
    assert "not ok 1 - a" in out and "not done after 1 s" in out and "ok 2 - b: well" in out


def test_an_archive_carries_what_is_done_to_another_checkout(run, tmp_path, monkeypatch):
    run.kept.ARCHIVE = tmp_path / "reports.tar.gz"
    calls = parts_of(run, a="well", b=run.host.Failed("exit 1"))
    run.main(["correct"], False)
    monkeypatch.setattr(run.host, "REPORTS", tmp_path / "elsewhere")
    assert run.main(["correct"], False) == 1 and calls == ["a", "b", "b"]
    assert "| a | ok |" in (tmp_path / "elsewhere/correct.md").read_text()


def test_of_an_archive_only_what_is_newer_is_taken(run, tmp_path):
    run.kept.ARCHIVE = tmp_path / "reports.tar.gz"
    calls = parts_of(run, a="well")
    run.main(["correct"], False)
    found = run.kept.read("correct")
    run.kept.write("correct", {"a": {**found["a"], "said": "better", "at": found["a"]["at"] + 1}})
    run.main(["correct"], False)
    assert run.kept.read("correct")["a"]["said"] == "better" and calls == ["a"]


def test_a_part_that_the_end_of_a_run_cuts_is_no_failure_and_comes_again(run, capsys, monkeypatch):
    calls = parts_of(run, a="well")
    _, part = run.PARTS["correct"][0]
    times = iter([100, 100, 0.5])
    monkeypatch.setattr(run.host, "left", lambda: next(times))
    run.PARTS["correct"] = [("a", lambda: run.host.run(["sleep", "1000"], timeout=1))]
    assert run.main(["correct"], False) == 0
    assert capsys.readouterr().out == "1..1\nok 1 - a # SKIP no time is left: run again\n"
    monkeypatch.setattr(run.host, "left", lambda: 100)
    run.PARTS["correct"] = [("a", part)]
    assert run.main(["correct"], False) == 0 and calls == ["a"]


def test_parts_can_be_chosen_by_their_names(run, capsys):
    calls = parts_of(run, a="well", ab="well", c="well")
    run.main(["correct"], False, "a")
    assert calls == ["a", "ab"] and capsys.readouterr().out.startswith("1..2\n")


def test_when_the_time_is_over_the_rest_waits_for_the_next_run(run, capsys, monkeypatch):
    calls = parts_of(run, a="well", b="well")
    monkeypatch.setattr(run.host, "BEGUN", run.host.BEGUN - run.host.LIMIT_S)
    assert run.main(["correct"], False) == 0
    assert capsys.readouterr().out.count("# SKIP no time is left: run again") == 2 and not calls


def test_a_part_that_needs_longer_than_is_left_waits_for_the_next_run(run, capsys, monkeypatch):
    calls = parts_of(run, a="well", b="well")
    run.host.takes(100, 200, run.PARTS["correct"][0][1])
    monkeypatch.setattr(run.host, "left", lambda: 60)
    assert run.main(["correct"], False) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[1].endswith("a # SKIP no time is left: run again") and calls == ["b"]
    monkeypatch.setattr(run.host, "left", lambda: 100)
    assert run.main(["correct"], False) == 0 and calls == ["b", "a"]


def test_a_wrong_word_gets_the_help():
    done = subprocess.run([PATH, "everything"], capture_output=True, text=True)
    assert done.returncode == 1 and "correct | speed | learn" in done.stderr


def test_a_part_that_breaks_fails_alone_and_says_where(run, capsys):
    parts_of(run, a=KeyError("loss"), b="well")
    assert run.main(["correct"], False) == 1
    out = capsys.readouterr().out
    assert "not ok 1 - a\n# the part broke\n# Traceback" in out and "KeyError: 'loss'" in out and "ok 2 - b: well" in out
    assert "KeyError: 'loss'" in (run.host.REPORTS / "correct.md").read_text()


def test_what_a_part_says_in_more_lines_stands_below_the_table(run, capsys):
    parts_of(run, a="0.9 of the floor\n| product | ms |\n|---|---|\n| up | 1 |", b="well")
    assert run.main(["correct"], False) == 0
    assert "ok 1 - a: 0.9 of the floor\nok 2" in capsys.readouterr().out
    report = (run.host.REPORTS / "correct.md").read_text()
    assert "| 0.9 of the floor |\n| b | ok |" in report
    assert report.endswith("\n\n## a\n\n| product | ms |\n|---|---|\n| up | 1 |\n")


def test_a_run_that_was_killed_goes_on_where_it_was(run):
    def killed():
        raise SystemExit(143)  # what SIGTERM becomes; SIGKILL leaves the same files
    calls = parts_of(run, a="well", b="well", c="well")
    a, b, c = run.PARTS["correct"]
    run.PARTS["correct"] = [a, ("b", killed), c]
    with pytest.raises(SystemExit):
        run.main(["correct"], False)
    assert "| a | ok |" in (run.host.REPORTS / "correct.md").read_text()
    run.PARTS["correct"] = [a, b, c]
    assert run.main(["correct"], False) == 0 and calls == ["a", "b", "c"]


def test_a_damaged_record_begins_anew(run):
    calls = parts_of(run, a="well")
    run.host.REPORTS.mkdir()
    (run.host.REPORTS / "correct.json").write_text('{"a": {"commit": "abc", "res')
    assert run.main(["correct"], False) == 0 and calls == ["a"]


def test_a_late_program_ends_with_all_that_it_has_started(run, tmp_path):
    os.mkfifo(tmp_path / "held")
    held = os.open(tmp_path / "held", os.O_RDONLY | os.O_NONBLOCK)
    with pytest.raises(run.host.Failed, match=r"not done after \d+ s\nabout to wait"):
        run.host.run(["sh", "-c", f"echo about to wait >&2; sleep 1000 > {tmp_path}/held & wait"], timeout=1)
    poll = select.poll()
    poll.register(held, 0)
    assert poll.poll(10_000) == [(held, select.POLLHUP)]  # nobody has the other end any more
    os.close(held)


def test_a_failed_programs_first_and_last_words_are_told_and_most_of_the_rest_is_kept(run, monkeypatch):
    monkeypatch.setattr(run.host, "EXCERPT", 10)
    with pytest.raises(run.host.Failed) as x:
        run.host.run(["sh", "-c", "echo the cause; seq 100 199; echo the end >&2; exit 3"], NCCL_ALGO="Ring", SEED="1")
    assert str(x.value) == "SEED=1 sh -c echo the cause; seq 100 199; echo the end >&2; exit 3: exit 3\nthe end\nthe cause\n\n[...]\n97\n198\n199"
    kept = (run.host.REPORTS / "failures.txt").read_text()
    assert "the end" in kept and "the cause" in kept and "\n150\n" in kept


def test_a_program_that_fails_keeps_no_other_from_its_turn(run):
    with pytest.raises(run.host.Failed, match="(?s)exit 1.*exit 2"):
        run.host.run_each([(9, ["sh", "-c", "exit 1"]), (9, ["sh", "-c", "exit 2"])])
    assert run.host.run_each([(9, ["echo", "a"]), (9, ["echo", "b"])]) == ["a\n", "b\n"]
    with pytest.raises(run.host.Failed) as x:
        run.host.run_each([(1, ["sleep", "1000"]), (9, ["sh", "-c", "exit 2"])])
    assert "not done" in str(x.value) and "exit 2" not in str(x.value)


def test_what_the_device_refused_is_done_again_under_memcheck(run, tmp_path, monkeypatch):
    tool = tmp_path / "compute-sanitizer"
    tool.write_text("#!/bin/sh\necho Invalid write in $6 $8\n")
    tool.chmod(0o755)
    monkeypatch.setattr(run.host, "sanitizer", lambda: str(tool))
    with pytest.raises(run.host.Failed, match="under memcheck:\nInvalid write in -c"):
        run.host.run(["sh", "-c", "echo an illegal memory access >&2; exit 1"])
    with pytest.raises(run.host.Failed) as x:
        run.host.run(["sh", "-c", "echo two numbers differ >&2; exit 1"])
    assert "memcheck" not in str(x.value)


def test_a_library_can_be_hidden_from_our_programs(run, monkeypatch):
    monkeypatch.setattr(run.host, "library_folders", lambda ours: ["/a/nvidia/cudnn/lib", "/a/nvidia/nccl/lib"])
    monkeypatch.setenv("LD_LIBRARY_PATH", "/mine")
    out = run.host.run(["sh", "-c", "echo $LD_LIBRARY_PATH"], without="cudnn")
    assert out == "/a/nvidia/nccl/lib:/mine\n"


def archive_of(run, commit, program, sources="here"):
    folder = run.host.WORK / "new"
    (folder / "bin").mkdir(parents=True, exist_ok=True)
    (folder / "commit").write_text(commit)
    (folder / "sources.json").write_text('{"source.c": "%s"}' % hashlib.sha256(sources.encode()).hexdigest())
    (folder / "bin/trainyard-train").write_text(program)
    with tarfile.open(run.host.ARCHIVE, "w:xz") as archive:
        archive.add(folder, arcname=".")


@pytest.fixture
def packed(run, tmp_path, monkeypatch):
    monkeypatch.setattr(run.host, "PACK", tmp_path / "work/pack")
    monkeypatch.setattr(run.host, "ARCHIVE", tmp_path / "work/pack.tar.xz")
    monkeypatch.setattr(run.host, "ROOT", tmp_path)
    (tmp_path / "source.c").write_text("here")
    run.host.build.cache_clear(), run.host.commit.cache_clear()
    yield run
    run.host.build.cache_clear(), run.host.commit.cache_clear()


def test_a_newer_pack_takes_the_place_of_an_older_one(packed):
    archive_of(packed, "abc", "old")
    assert (packed.host.unpack() / "bin/trainyard-train").read_text() == "old"
    archive_of(packed, "abc", "new")
    assert (packed.host.build() / "bin/trainyard-train").read_text() == "new"
    assert packed.host.commit() == "abc"


def test_a_pack_of_other_sources_is_refused(packed):
    archive_of(packed, "def", "old", sources="there")
    with pytest.raises(packed.host.Failed, match="is of def, with another source.c than is here"):
        packed.host.build()


def test_a_pack_tells_its_commit(packed):
    archive_of(packed, "def", "old")
    assert packed.host.build() == packed.host.PACK and packed.host.commit() == "def"


def test_the_packs_text_is_there_before_anything_else_of_it_is_asked_for(packed, monkeypatch):
    monkeypatch.delenv("TRAINYARD_TEXT", raising=False)
    (packed.host.WORK / "new").mkdir(parents=True)
    (packed.host.WORK / "new/text").write_text("First Citizen:")
    archive_of(packed, "abc", "program")
    assert packed.host.text().read_text() == "First Citizen:"


def test_a_build_that_a_run_cuts_is_no_failure_and_a_pack_waits_for_it(run, tmp_path, monkeypatch):
    tool, calls = tmp_path / "cmake", tmp_path / "calls"
    tool.write_text(f"#!/bin/sh\necho $1 >> {calls}\n[ $1 = --preset ] || exec sleep 2\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr(run.host, "left", lambda: 1)
    with pytest.raises(run.host.Cut):
        run.host.make(100)
    assert run.host.make(None).name == "build"
    assert calls.read_text().split() == ["--preset", "--build"] * 2


def test_the_sources_are_what_git_has_but_reports_and_pages(run):
    names = run.host.sources()
    assert names["tests/gpu/run"] == run.host.digest_of(PATH)
    assert not [name for name in names if name.endswith(".md") or name.startswith("bench/gpu/")]


def test_a_host_without_git_has_no_checkout(run, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    assert run.host.checkout() == ""


def test_a_dry_run_says_so_and_keeps_away_from_the_reports(run, monkeypatch, capsys):
    done = subprocess.run([sys.executable, "-c", "import host; print(host.REPORTS, host.DEVICE)"], cwd=PATH.parent, text=True,
                          env=dict(os.environ, TRAINYARD_GPU_DRY="1"), capture_output=True, check=True)
    assert done.stdout == f"{run.host.ROOT}/build/gpu-dry/reports cpu\n"
    monkeypatch.setattr(run.host, "DRY", True)
    parts_of(run, a="1000 TFLOP/s")
    run.main(["correct"], False)
    assert "ok 1 - a: dry run: 1000 TFLOP/s" in capsys.readouterr().out
    assert (run.host.REPORTS / "correct.md").read_text().startswith(
        "# DRY RUN of tests/gpu/run correct\n\nDRY RUN on a CPU: no figure here is a GPU's")


def test_a_program_without_a_device_is_a_skip_in_a_dry_run_alone(run, monkeypatch):
    with pytest.raises(run.host.Failed, match="exit 77"):
        run.host.run(["sh", "-c", "exit 77"])
    monkeypatch.setattr(run.host, "DRY", True)
    with pytest.raises(run.host.Skip):
        run.host.run(["sh", "-c", "exit 77"])


def test_a_figure_that_misses_its_goal_is_no_success_and_is_not_measured_again(run, capsys):
    calls = parts_of(run, a=run.host.Missed("0.9 times PyTorch: fast 0.90 is below 1.15\n| table |"), b="well")
    for _ in range(2):
        assert run.main(["correct"], False) == 1
        assert "not ok 1 - a: 0.9 times PyTorch: fast 0.90 is below 1.15\nok 2" in capsys.readouterr().out
    assert calls == ["a", "b"]
    report = (run.host.REPORTS / "correct.md").read_text()
    assert "| a | missed |" in report and report.endswith("## a\n\n| table |\n")


def resumed_with(run, monkeypatch, record):
    """The part over trainings that only write what they have chosen."""
    def train(path, *options):
        folder = options[options.index("--checkpoints") + 1] / "step-4"
        folder.mkdir(parents=True)
        resumed = "--resume" in options
        (folder / "rank-0.json").write_text(json.dumps({"record": record if resumed else "on a device\nconvolution 1:2=3\n"}))
        return [{"loss": 1.0}] * (2 if resumed else 4)
    correct = sys.modules["correct"]
    monkeypatch.setattr(correct.models, "train", train)
    monkeypatch.setattr(correct.models, "step_spec", lambda name, numerics: {"train": {"global_batch": 1}})
    return correct.goes_on_under_fast()


def test_a_resumed_run_that_chose_anew_fails_though_its_losses_agree(run, monkeypatch):
    assert "by the same 2 lines" in resumed_with(run, monkeypatch, "on a device\nconvolution 1:2=3\n")
    with pytest.raises(run.host.Failed, match="others:(.|\n)*-convolution 1:2=3\n.*1:2=4"):
        resumed_with(run, monkeypatch, "on a device\nconvolution 1:2=4\n")
    with pytest.raises(run.host.Failed, match="no record"):
        resumed_with(run, monkeypatch, "")


def test_a_step_that_could_not_be_captured_fails_and_says_why(run, monkeypatch):
    models = sys.modules["models"]
    monkeypatch.setattr(models.host, "build", lambda: pathlib.Path("/"))
    said = "trainyard-train: rank 0, step 2: the step could not be captured as a graph and runs call by call: why"
    monkeypatch.setattr(models.host, "finish", lambda command, timeout, **more: ('{"step": 1}\n', said))
    with pytest.raises(run.host.Failed, match="could not be captured as a graph and runs call by call: why"):
        models.train("spec")
    monkeypatch.setattr(models.host, "finish", lambda command, timeout, **more: ('{"step": 1}\n', ""))
    assert models.train("spec") == [{"step": 1}]


def test_attention_that_cudnn_does_not_compute_fails_and_is_named(run, monkeypatch):
    check = run.speed.measured.check_engines
    cudnn = "trainyard products 1\non a device\nattention bf16 64 1024 12 12 64 1 0 0 91900 1 8:3=1\n"
    check("GPT-2 124M", cudnn)
    with pytest.raises(run.host.Failed, match="cuDNN had no engine for attention-backward"):
        check("GPT-2 124M", cudnn + "attention-backward bf16 64 1024 12 12 64 1 0 0 91900 1 -\n")
    with pytest.raises(run.host.Failed, match="names no engine of cuDNN's for attention"):
        check("GPT-2 124M", "trainyard products 1\non a device\n")
    with pytest.raises(run.host.Failed, match="names no engine of cuDNN's for convolution"):
        check("ResNet-50", cudnn)


def full_size_of(run, monkeypatch, losses, norms=(1.0,) * 6):
    """The module, whose trainings have these losses."""
    full_size = sys.modules["full_size"]
    monkeypatch.setattr(full_size.measured, "ours", lambda name, numerics: {
        "losses": [10.98] * 20, "norms": [1.0] * 20, "times": [0.1], "driver": 1 << 30})
    rows = [{"loss": loss, "grad_norm": norm} for loss, norm in zip(losses, norms)]
    monkeypatch.setattr(full_size.models, "train", lambda path, *options, **more: rows)
    return full_size


def test_micro_batches_whose_losses_differ_fail(run, monkeypatch):
    assert "at most 9.1e-05 apart" in full_size_of(run, monkeypatch, [10.981] * 6).in_micro_batches()
    with pytest.raises(run.host.Failed, match="losses are 1.8e-03 apart, and may be 1e-03"):
        full_size_of(run, monkeypatch, [10.98] * 5 + [11.0]).in_micro_batches()
    with pytest.raises(run.host.Failed):
        full_size_of(run, monkeypatch, [10.98] * 5 + [float("nan")]).in_micro_batches()
    with pytest.raises(run.host.Failed, match="gradient norms"):
        full_size_of(run, monkeypatch, [10.98] * 6, [1.0] * 5 + [1.1]).in_micro_batches()


def test_a_first_loss_that_is_not_that_of_equal_guesses_fails(run, monkeypatch):
    full_size = full_size_of(run, monkeypatch, [])
    assert abs(full_size.first_loss() - 10.979) < 0.001 and "first loss 10.9800" in full_size.step("fast")()
    monkeypatch.setattr(full_size.measured, "ours", lambda name, numerics: {"losses": [9.9] * 20, "times": [0.1]})
    with pytest.raises(run.host.Failed, match="the first loss should be near 10.98"):
        full_size.step("fast")()


def test_a_training_is_measured_once_at_a_commit(run, monkeypatch):
    measured, calls = run.speed.measured, []
    monkeypatch.setattr(measured, "train", lambda name, numerics: calls.append(numerics) or {"losses": [1.0]})
    monkeypatch.setattr(measured.host, "commit", lambda: "abc")
    assert measured.ours("GPT-2 124M", "fast")["losses"] == measured.ours("GPT-2 124M", "fast")["losses"] == [1.0]
    measured.ours("GPT-2 124M", "reproducible")
    measured.ours("GPT-2 124M", "fast", again=True)
    monkeypatch.setattr(measured.host, "commit", lambda: "def")
    measured.ours("GPT-2 124M", "fast")
    assert calls == ["fast", "reproducible", "fast", "fast"]


def steps_of(seconds):
    """A step is at its best a tenth faster than at its median."""
    return {"times": [seconds, 0.9 * seconds, 2 * seconds], "data": [0, 0.002, 0.1], "own": [27 * 2**30], "driver": 28 * 2**30,
            "said": "compiled"}


def speed_of(run, monkeypatch, fast, reproducible, peer):
    seconds = {"fast": iter(fast), "reproducible": iter(reproducible)}
    monkeypatch.setattr(run.speed.measured, "ours", lambda name, numerics, again=False: steps_of(next(seconds[numerics])))
    monkeypatch.setattr(run.speed, "theirs", peer)
    return run.speed.steps("GPT-2 124M")


def test_a_step_is_told_beside_pytorchs(run, monkeypatch):
    part = speed_of(run, monkeypatch, [0.1, 0.1], [0.11], lambda name: steps_of(0.12))
    first, *table = part().splitlines()
    assert first == "1.20 times PyTorch fast, 1.09 reproducible, which costs 10.0%; 1.00 of its memory"
    assert "| fast | 90.0 | 100.0 | 655,360 | 27.0 | 28.0 | 1.20 | 1.20 |" in table
    assert "| PyTorch | 108.0 | 120.0 | 546,133 | 27.0 | 28.0 |  |  |" in table
    assert "fast, before and after PyTorch: medians of 100.0 and 100.0 ms" in table
    assert "of a step ours waited for data: 2.00 ms fast, 2.00 ms reproducible" in table


def test_without_time_there_is_no_second_round(run, monkeypatch):
    part = speed_of(run, monkeypatch, [0.1], [0.11], lambda name: steps_of(0.12))
    monkeypatch.setattr(run.host, "left", lambda: 10)
    assert "before and after" not in part()


def test_a_step_that_is_too_slow_and_one_without_a_peer_miss(run, monkeypatch):
    part = speed_of(run, monkeypatch, [0.1, 0.1], [0.13], lambda name: steps_of(0.114))
    with pytest.raises(run.host.Missed, match="fast 1.14 is below 1.15, reproducible 0.88 is below 1"):
        part()

    def smaller(name):
        return {**steps_of(0.12), "driver": 27 * 2**30}
    with pytest.raises(run.host.Missed, match="1.04 of its memory: 1.04 of its memory is above 1"):
        speed_of(run, monkeypatch, [0.1, 0.1], [0.11], smaller)()

    def absent(name):
        raise run.host.Skip("no PyTorch")
    with pytest.raises(run.host.Missed, match=r"100.0 ms fast; no figure of PyTorch's: no PyTorch\n(.|\n)*\| fast \| 90.0 "):
        speed_of(run, monkeypatch, [0.1], [0.13], absent)()


def test_the_shares_of_the_floors_are_read_from_the_kernels_table(run):
    assert run.speed.shares("124M 768 -> 768   0.1 ms\nfloor products 0.81\nfloor norms 0.90\ntrainyard products 1\n") == [
        ["products", "0.81"], ["norms", "0.90"]]


def test_the_peak_is_what_came_beyond_what_was_there(run, monkeypatch):
    counts, all_asked = iter([100, 160]), threading.Event()

    def used():
        count = next(counts, None)
        if count is None:
            all_asked.set()
        return count or 140
    monkeypatch.setattr(run.speed.memory, "used", used)
    with run.speed.memory.Peak() as peak:
        assert all_asked.wait(60)
    assert peak.bytes == 60


def test_kernels_stand_beside_those_that_pytorch_has(run, monkeypatch):
    out = ("124M 768 -> 768                                  0.200 ms      0.5 TFLOP/s\n"
           "causal attention, head 64, backward              0.500 ms      0.0 TFLOP/s\n")
    own = run.speed.milliseconds(out)
    assert own == {"124M 768 -> 768": 0.2, "causal attention, head 64, backward": 0.5}
    monkeypatch.setattr(run.host, "peer", lambda what: lambda: '{"rows": {"124M 768 -> 768": 0.0003, "causal attention, head 128": 1}}')
    assert run.speed.beside("products", own) == ["| 124M 768 -> 768 | 0.200 | 0.300 | 1.50 |"]

    def absent(what):
        raise run.host.Skip("no PyTorch")
    monkeypatch.setattr(run.host, "peer", absent)
    assert run.speed.beside("products", own) == ["| products | | | no figure of PyTorch's: no PyTorch |"]
