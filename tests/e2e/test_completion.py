"""`trainyard completion`: what real shells offer when the user presses the tab key."""

import os
import pty
import re
import select
import shutil
import signal
import subprocess
import time

import pytest

from service_fixture import BIN, PATIENCE


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
    assert offered(shared_service, "submit", "") == offered(shared_service, "up", "--dir", "") == [":files"]
    assert offered(shared_service, "nothing", "") == []


def test_fields_of_a_spec_are_offered_level_by_level(shared_service):
    assert offered(shared_service, "submit", "--set", "train.op") == ["train.optimizer."]
    assert "train.optimizer.adamw.lr=" in offered(shared_service, "submit", "--set", "train.optimizer.adamw.")
    assert offered(shared_service, "submit", "--set", "train.nothing.") == []
    assert offered(shared_service, "submit", "--set", "name.") == []


def test_jobs_and_executors_of_the_controller_are_offered(shared_service, tiny):
    job = shared_service.submit(tiny(steps=1))
    assert job in offered(shared_service, "watch", "")
    assert job in offered(shared_service, "submit", "--fork", job)
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
    pid, terminal = pty.fork()
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
                                            ("trainyard list --state PAUSI\t", "PAUSING "), ("trainyard submit /etc/hostna\t", "/etc/hostname ")])
def test_bash_completes_words(shared_service, keys, expected):
    typed(shared_service, "bash", ["--norc", "-i"], "source <(trainyard completion bash)", keys, expected)


@pytest.mark.skipif(not shutil.which("zsh"), reason="no zsh on this machine")
@pytest.mark.parametrize("keys, expected", [("trainyard subm\t", "trainyard submit "), ("trainyard list --state PAUSI\t", "PAUSING ")])
def test_zsh_completes_words(shared_service, keys, expected):
    typed(shared_service, "zsh", ["-f", "-i"], "autoload -Uz compinit; compinit -u; source <(trainyard completion zsh)", keys, expected)


@pytest.mark.skipif(not shutil.which("fish"), reason="no fish on this machine")
def test_fish_completes_words(shared_service, tmp_path):
    script = shared_service.cli("completion", "fish").stdout
    environment = {**shared_service.environment(), "PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    done = subprocess.run(["fish", "-c", script + "complete -C 'trainyard subm'; complete -C 'trainyard list --state PAUSI'"], env=environment,
                          capture_output=True, text=True, timeout=60 * PATIENCE)
    assert [line.partition("\t")[0] for line in done.stdout.splitlines()] == ["submit", "PAUSING"], done.stderr
