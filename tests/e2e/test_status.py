"""`trainyard status` and `top`, and what they and `watch` draw on a terminal."""

import contextlib
import fcntl
import os
import pwd
import re
import select
import signal
import struct
import termios
import time

import pytest

from service_fixture import BIN, PATIENCE, make_service, wait_until
from terminals import fork_terminal


@pytest.fixture(scope="module")
def service():
    yield from make_service(executors=2, slots=2)


def lines(service):
    return dict(line.split(maxsplit=1) for line in service.cli("status").stdout.partition("\n\n")[0].splitlines())


def test_the_screen_counts_what_there_is(service):
    wait_until(lambda: lines(service)["executors"] == "2 attached", 30, "two executors")
    running = service.submit({"name": "r", "program": {"command": ["sleep", "600"]}})
    waiting = service.submit({"name": "w", "program": {"command": ["true"]}, "parallel": {"data": 9}})
    wait_until(lambda: service.json("get", running)["state"] == "RUNNING", 30, "a running job")
    wait_until(lambda: lines(service)["slots"].startswith("cpu 1 of 4 used, 9 wanted by waiting jobs"), 30, "the counts of a later tick")
    shown = lines(service)
    assert shown["controller"].startswith(service.address) and shown["controller"].endswith(", leads")
    assert shown["database"].startswith("PostgreSQL ") and " ms" in shown["database"]
    assert shown["caller"] == pwd.getpwuid(os.geteuid()).pw_name and shown["devices"] == "0 GPUs"
    assert shown["jobs"] == "1 QUEUED, 1 RUNNING"
    assert service.cli("status").stdout.endswith("\nNothing needs attention.\n")
    answer = service.json("status")
    assert answer["leads"] and answer["attention"] == [] and answer["leader"] == service.cli("status", "-o", "name").stdout.strip()
    service.cli("cancel", running, waiting)


def test_what_needs_attention_is_said(service):
    job = service.submit({"name": "bad", "program": {"command": ["false"]}, "retry": {"max_restarts": 0}})
    service.wait_end(job, "FAILED")
    executor = service.json("executors")["executors"][0]
    service.cli("drain", executor["name"].partition("/")[2], "--reason", "new disk")
    os.kill(service.pid_of("trainyard-executor", 1), signal.SIGSTOP)
    try:
        attention = wait_until(lambda: (said := service.json("status")["attention"]) and len(said) == 3 and said, 60, "three sentences")
    finally:
        os.kill(service.pid_of("trainyard-executor", 1), signal.SIGCONT)
    assert any("is drained since" in said and said.endswith(": new disk") for said in attention), attention
    assert any("is lost; its last heartbeat came" in said for said in attention), attention
    assert any(said.startswith(f"1 job failed within the last day, the last one is job {job}: ") for said in attention), attention
    assert "Needs attention\n" in service.cli("status").stdout


def on_terminal(service, until, *arguments, **environment):
    """What a command writes to a terminal of 12 lines of 60 columns, until it contains `until` or the command ends."""
    pid, terminal = fork_terminal()
    if pid == 0:
        os.execvpe(BIN / "trainyard", ["trainyard", *arguments], {**service.environment(), "TERM": "xterm", "NO_COLOR": "1", **environment})
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 12, 60, 0, 0))
    text, end = "", time.monotonic() + 30 * PATIENCE
    try:
        while not (until and until(text)) and time.monotonic() < end:
            if select.select([terminal], [], [], 0.2)[0]:
                text += os.read(terminal, 65536).decode(errors="replace")
    except OSError:  # the command has ended
        pass
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    os.close(terminal)
    return text


def test_top_shows_running_jobs_and_is_drawn_again_on_a_terminal_only(service, tiny):
    for executor in service.json("executors")["executors"]:
        service.cli("undrain", executor["name"].partition("/")[2])
    job = service.submit(tiny(steps=1000000, data=2))
    with service.watch(job) as watch:
        watch.until_step(5)
    head, counts, empty, columns, *rows = service.cli("top").stdout.splitlines()
    assert " executors " in head and "cpu slots 2 of" in head and "1 RUNNING" in counts and empty == ""
    row = dict(zip(columns.split(), next(row for row in rows if row.split()[0] == job).split()))
    assert row["NAME"] == "tiny" and row["STATE"] == "RUNNING" and row["RANKS"] == "2" and int(row["CORES"]) >= 2
    assert row["STEP"].endswith("/1000000") and float(row["STEP/S"]) > 0 and float(row["LOSS"]) > 0 and row["COMPUTE"].endswith("%")
    assert row["GPU"] == "-" and row["LEFT"] != "-"
    screens = on_terminal(service, lambda text: text.count("\033[H") >= 3, "top", "--interval", "0.5")
    assert screens.count("\033[H") >= 3 and "\033[J" in screens
    screen = screens.split("\033[H")[2].split("\033[J")[0]
    lines_shown = screen.replace("\033[K", "").split("\r\n")
    assert len(lines_shown) <= 12 and all(len(line) <= 60 for line in lines_shown), lines_shown
    once = on_terminal(service, None, "top", TERM="dumb")
    assert "\033" not in once and once.count("RUNNING") >= 1 and once.count("STEP/S") == 1
    service.cli("cancel", job)
    assert service.cli("top", "--interval", "0", status=2).stderr.startswith("trainyard: --interval: 0 is not from 0.5")
    assert "prints a table only" in service.cli("top", "-o", "json", status=2).stderr


def test_watch_draws_a_bar_on_a_terminal_and_lines_elsewhere(service, tiny):
    job = service.submit(tiny(steps=400))
    text = on_terminal(service, None, "watch", job)
    bars = re.findall(r"\r\033\[Kstep \[[=> ]{24}\] (\d+)/400([^\r\n]*)", text)
    assert bars and all(len(f"step [{' ' * 24}] {step}/400{rest}") <= 60 for step, rest in bars), text[-2000:]
    assert bars[-1][0] == "400" and "loss" in bars[-1][1] and "SUCCEEDED" in text
    plain = on_terminal(service, None, "watch", job, TERM="dumb")
    assert "\033" not in plain and "SUCCEEDED" in plain
