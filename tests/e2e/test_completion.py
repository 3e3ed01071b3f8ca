"""`trainyard completion`: what real shells offer when the user presses the tab key."""

import json
import os
import re
import select
import shutil
import signal
import subprocess
import time

import pytest

from service_fixture import BIN, PATIENCE
from terminals import fork_terminal


def offered(service, *words):
    return [line.partition("\t")[0] for line in service.cli("complete", *words).stdout.splitlines()]


def test_commands_options_and_values_are_offered(shared_service):
    assert offered(shared_service, "su") == ["submit"]
    assert {"submit", "list", "help", "version", "completion"} <= set(offered(shared_service, ""))
    assert "complete" not in offered(shared_service, "")
    assert offered(shared_service, "help", "wat") == ["watch"]
    assert {"--set", "--fork", "--controller"} <= set(offered(shared_service, "submit", "-"))
    assert offered(shared_service, "list", "--state", "PAUS") == ["PAUSING", "PAUSED"]
    assert offered(shared_service, "list", "-o", "") == ["table", "json", "yaml", "name"]
    assert offered(shared_service, "token", "") == ["create", "list", "revoke"]
    assert offered(shared_service, "token", "create", "") == []
    assert offered(shared_service, "checkpoint", "p") == ["pin"]
    assert offered(shared_service, "list", "--sort", "st") == ["started", "state"]
    assert offered(shared_service, "list", "--columns", "job,st") == ["job,state", "job,step", "job,steps", "job,started"]
    assert offered(shared_service, "token", "list", "") == offered(shared_service, "token", "revoke", "") == []
    assert offered(shared_service, "submit", "") == offered(shared_service, "up", "--dir", "") == [":files"]
    assert offered(shared_service, "nothing", "") == []


def test_fields_of_a_spec_are_offered_level_by_level(shared_service):
    assert offered(shared_service, "submit", "--set", "train.op") == ["train.optimizer."]
    assert "train.optimizer.adamw.lr=" in offered(shared_service, "submit", "--set", "train.optimizer.adamw.")
    assert offered(shared_service, "submit", "--set", "train.nothing.") == []
    assert offered(shared_service, "submit", "--set", "name.") == []
    assert offered(shared_service, "submit", "--set", "train.precision=") == [f"train.precision={p}" for p in ("fp32", "bf16", "fp16")]
    assert offered(shared_service, "submit", "--set", "train.precision=b") == ["train.precision=bf16"]
    assert offered(shared_service, "submit", "--set", "train.nothing=b") == offered(shared_service, "submit", "--set", "train.seed=") == []
    help_texts = shared_service.cli("complete", "submit", "--set", "queu").stdout
    assert help_texts == "queue=\tthe queue that the job waits in\n"


def test_fields_of_a_sweep_and_of_its_job_are_offered(shared_service):
    def of_sweep(path):
        return offered(shared_service, "sweep", "create", "sweep.yaml", "--set", path)
    assert of_sweep("s") == ["search."] and of_sweep("search.") == [f"search.{kind}." for kind in ("grid", "random", "asha")]
    assert "search.asha.min_steps=" in of_sweep("search.asha.") and of_sweep("go") == ["goal="]
    assert of_sweep("goal=") == ["goal=minimize", "goal=maximize"] and of_sweep("goal=ma") == ["goal=maximize"]
    assert of_sweep("j") == ["job."] and of_sweep("job.train.op") == ["job.train.optimizer."]
    assert of_sweep("job.train.precision=b") == ["job.train.precision=bf16"]
    assert of_sweep("spec") == of_sweep("train.op") == of_sweep("nothing.") == []


def test_sweeps_of_the_controller_are_offered(shared_service, tmp_path):
    path = tmp_path / "sweep.json"
    for name in ("many-rates", "many-seeds"):
        path.write_text(json.dumps({"name": name, "job": {"program": {"command": ["true"]}}, "parameters": {
            "program.environment.N": {"choices": ["1"]}}}))
        shared_service.cli("sweep", "create", path, "--wait-for-hosts")
    for verb in ("get", "watch", "cancel", "delete"):
        assert offered(shared_service, "sweep", verb, "many-") == ["many-seeds", "many-rates"]
    assert offered(shared_service, "sweep", "get", "many-r") == ["many-rates"]
    assert re.fullmatch("many-rates\t(RUNNING|SUCCEEDED|FAILED)\n", shared_service.cli("complete", "sweep", "get", "many-r").stdout)
    assert offered(shared_service, "sweep", "list", "many-") == offered(shared_service, "sweep", "get", "many-rates", "") == []
    assert offered(shared_service, "sweep", "create", "") == [":files"]
    assert offered(shared_service, "sweep", "w") == ["watch"]


def test_jobs_and_executors_of_the_controller_are_offered(shared_service, tiny):
    job = shared_service.submit(tiny(steps=1))
    assert job in offered(shared_service, "watch", "")
    assert job in offered(shared_service, "submit", "--fork", job)
    assert "tiny" not in offered(shared_service, "watch", "") and offered(shared_service, "watch", "ti")[0] == "tiny"
    labelled = shared_service.submit({"name": "labelled", "labels": {"shade": "blue"}, "program": {"command": ["true"]}})
    assert offered(shared_service, "cancel", "-l", "sha") == ["shade=blue"]
    assert labelled in offered(shared_service, "cancel", job, "")
    executors = [e["name"].partition("/")[2] for e in shared_service.json("executors")["executors"]]
    assert set(executors) <= set(offered(shared_service, "drain", ""))


def test_an_unreachable_controller_has_nothing_to_offer():
    environment = {**os.environ, "TRAINYARD_CONTROLLER": "unix:/nonexistent/controller.sock"}
    done = subprocess.run([BIN / "trainyard", "complete", "watch", ""], env=environment, capture_output=True, text=True,
                          timeout=60 * PATIENCE)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_an_unknown_shell_is_refused(shared_service):
    assert "'csh' is not one of: bash, zsh, fish" in shared_service.cli("completion", "csh", status=2).stderr


def typed(service, shell, arguments, script, keys, expected):
    """The screen of an interactive shell after `keys`, when it shows `expected`."""
    environment = {**service.environment(), "PATH": f"{BIN}:{os.environ['PATH']}", "TERM": "dumb", "HOME": str(service.directory),
                   "PS1": "$ "}
    pid, terminal = fork_terminal()
    if pid == 0:
        os.execvpe(shell, [shell, *arguments], environment)
    screen = ""
    end = time.monotonic() + 30 * PATIENCE
    try:
        os.write(terminal, f"{script}; echo set-up-$((1 + 1))\n".encode())
        sent = False
        while time.monotonic() < end and not (sent and re.search(expected, screen)):
            if not sent and "set-up-2" in screen:
                sent, screen = True, ""
                os.write(terminal, keys.encode())
            if select.select([terminal], [], [], 0.2)[0]:
                screen += os.read(terminal, 4096).decode(errors="replace")
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)
    assert re.search(expected, screen), screen
    return screen


@pytest.mark.parametrize("keys, expected", [("trainyard subm\t", "trainyard submit "), ("trainyard submit --set train.opt\t", r"train\.optimizer\."),
                                            ("trainyard list --state PAUSI\t", "PAUSING "), ("trainyard submit /etc/hostna\t", "/etc/hostname "),
                                            ("trainyard submit --set train.precision=b\t", "train.precision=bf16 "),
                                            ("trainyard submit --set train.precisio\tb\t", "train.precision=bf16 "),
                                            ("trainyard sweep create x --set goal=ma\t", "goal=maximize ")])
def test_bash_completes_words(shared_service, keys, expected):
    typed(shared_service, "bash", ["--norc", "-i"], "source <(trainyard completion bash)", keys, expected)


@pytest.mark.skipif(not shutil.which("zsh"), reason="no zsh on this machine")
@pytest.mark.parametrize("keys, expected", [("trainyard subm\t", "trainyard submit "), ("trainyard list --state PAUSI\t", "PAUSING "),
                                            ("trainyard sweep create x --set goal=ma\t", "goal=maximize ")])
def test_zsh_completes_words(shared_service, keys, expected):
    typed(shared_service, "zsh", ["-f", "-i"], "autoload -Uz compinit; compinit -u; source <(trainyard completion zsh)", keys, expected)


@pytest.mark.skipif(not shutil.which("fish"), reason="no fish on this machine")
def test_fish_completes_words(shared_service, tmp_path):
    script = shared_service.cli("completion", "fish").stdout
    environment = {**shared_service.environment(), "PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    done = subprocess.run(["fish", "-c", script + "complete -C 'trainyard subm'; complete -C 'trainyard list --state PAUSI'; "
                           "complete -C 'trainyard sweep create x --set goal=ma'"], env=environment,
                          capture_output=True, text=True, timeout=60 * PATIENCE)
    assert [line.partition("\t")[0] for line in done.stdout.splitlines()] == ["submit", "PAUSING", "goal=maximize"], done.stderr
