"""What the client prints on a terminal and only there."""

import datetime
import os
import re
import subprocess

import pytest

from service_fixture import BIN, PATIENCE
from terminals import open_terminal

RED, GREEN = "\033[31m", "\033[32m"


def on_terminal(service, *arguments, **environment):
    """The output of a command whose standard output is a terminal."""
    ours, theirs = open_terminal()
    process = subprocess.Popen([BIN / "trainyard", *arguments], stdout=theirs, stderr=subprocess.PIPE,
                               env={**service.environment(), "TERM": "xterm", **environment})
    os.close(theirs)
    text = b""
    try:
        while piece := os.read(ours, 65536):
            text += piece
    except OSError:  # the terminal's last writer has ended
        pass
    os.close(ours)
    _, err = process.communicate(timeout=60 * PATIENCE)
    assert process.returncode == 0, err
    return text.decode()


@pytest.fixture(scope="module")
def two_jobs(shared_service):
    good = shared_service.submit({"name": "good", "program": {"command": ["true"]}})
    bad = shared_service.submit({"name": "bad", "program": {"command": ["false"]}})
    shared_service.wait_end(good)
    shared_service.wait_end(bad, "FAILED")


def test_states_have_colours_on_a_terminal(shared_service, two_jobs):
    text = on_terminal(shared_service, "list")
    assert f"{GREEN}SUCCEEDED\033[0m" in text and f"{RED}FAILED\033[0m" in text
    plain = text.replace(GREEN, "").replace(RED, "").replace("\033[0m", "").replace("\r\n", "\n")
    heads, *rows = [line for line in plain.splitlines() if " good " in line or " bad " in line or line.startswith("JOB")]
    assert len(rows) >= 2 and all(row[heads.index("STATE")] != " " and row[heads.index("STEP") - 1] == " " for row in rows)


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_colours_can_be_turned_off(shared_service, two_jobs, environment):
    assert "\033" not in on_terminal(shared_service, "list", **environment)


def test_a_pipe_gets_no_colours(shared_service, two_jobs):
    assert "\033" not in shared_service.cli("list").stdout


@pytest.mark.parametrize("zone, arguments, offset", [("Europe/Berlin", (), r"\+0[12]:00"), ("America/St_Johns", (), r"-0[23]:30"), ("UTC", (), "Z"),
                                                     ("Asia/Kolkata", ("--utc",), "Z")])
def test_times_are_local_and_have_their_offset(shared_service, two_jobs, zone, arguments, offset):
    shown = subprocess.run([BIN / "trainyard", "list", "--name", "good", "--columns", "created", *arguments], capture_output=True, text=True, check=True,
                           env={**shared_service.environment(), "TZ": zone}).stdout.splitlines()[1]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d" + offset, shown), shown
    created = shared_service.json("list", "--name", "good")["jobs"][0]["create_time"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d+Z", created), created
    same = datetime.datetime.fromisoformat(shown.replace("Z", "+00:00"))
    assert same == datetime.datetime.fromisoformat(created[:19] + "+00:00")
