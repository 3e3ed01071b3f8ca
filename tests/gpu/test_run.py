"""tests/gpu/run itself: what it skips, keeps, does again and reports. Its parts here need no device."""

import importlib.machinery
import importlib.util
import pathlib
import subprocess

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
    assert run.main("correct", False) == 0
    assert capsys.readouterr().out == "1..2\nok 1 - a # SKIP no NVIDIA driver\nok 2 - b # SKIP no NVIDIA driver\n"
    assert not calls and not run.host.REPORTS.exists()


def test_what_is_done_stays_done_and_what_failed_is_tried_again(run, capsys):
    calls = parts_of(run, a="well", b=run.host.Failed("exit 1\nbecause"), c=run.host.Skip("no peer"))
    assert run.main("correct", False) == 1
    assert capsys.readouterr().out.splitlines() == ["1..3", "ok 1 - a: well", "not ok 2 - b", "# exit 1", "# because",
                                                    "ok 3 - c # SKIP no peer"]
    assert run.main("correct", False) == 1
    assert calls == ["a", "b", "c", "b"]
    report = (run.host.REPORTS / "correct.md").read_text()
    assert "| a | ok |" in report and "| b | failed |" in report and "| exit 1 |" in report


def test_another_commit_and_fresh_begin_anew(run, monkeypatch):
    calls = parts_of(run, a="well")
    run.main("correct", False)
    run.main("correct", True)
    monkeypatch.setattr(run, "commit", lambda: "def")
    run.main("correct", False)
    assert calls == ["a", "a", "a"]


def test_when_the_time_is_over_the_rest_waits_for_the_next_run(run, capsys, monkeypatch):
    calls = parts_of(run, a="well", b="well")
    monkeypatch.setattr(run.host, "BEGUN", run.host.BEGUN - run.host.LIMIT_S)
    assert run.main("correct", False) == 0
    assert capsys.readouterr().out.count("# SKIP no time is left: run again") == 2 and not calls


def test_a_wrong_word_gets_the_help():
    done = subprocess.run([PATH, "everything"], capture_output=True, text=True)
    assert done.returncode == 1 and "correct | speed | learn" in done.stderr
