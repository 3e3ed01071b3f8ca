"""Which jobs a command means: by number, by name, by label, user and time; their order; and commands for several jobs."""

import json
import os
import pwd
import subprocess

import pytest

from service_fixture import BIN, PATIENCE
from terminals import open_terminal

WAITS = {"program": {"command": ["sleep", "600"]}, "parallel": {"data": 64}}  # no executor has so many slots: it waits


def submitted(service, name, **labels):
    return service.submit({"name": name, "labels": labels, **WAITS})


def listed(service, *arguments):
    return [job["name"].partition("/")[2] for job in service.json("list", *arguments)["jobs"]]


def states(service, jobs):
    return [service.json("get", job)["state"] for job in jobs]


def test_a_job_is_found_by_its_own_name_and_the_newest_of_several(shared_service):
    first = submitted(shared_service, "by-name")
    assert shared_service.json("get", "by-name")["name"] == f"jobs/{first}"
    second = submitted(shared_service, "by-name")
    done = shared_service.cli("get", "by-name", "-o", "json")
    assert json.loads(done.stdout)["name"] == f"jobs/{second}"
    assert done.stderr == f"job {second} is the newest of the jobs named by-name\n"
    assert shared_service.cli("explain", "by-name", "-o", "json").returncode == 0
    for verb in ("get", "cancel", "watch"):
        error = shared_service.cli(verb, "no-such-name", status=4).stderr
        assert error == "trainyard: no job is named 'no-such-name': give the name or the number that 'trainyard list' shows\n"
    assert "'' is not a job" in shared_service.cli("get", "", status=2).stderr
    shared_service.cli("cancel", first, second)


def test_jobs_are_listed_by_name_label_and_time(shared_service):
    a = submitted(shared_service, "listed", team="a", size="7")
    b = submitted(shared_service, "listed", team="b", size="7")
    other = submitted(shared_service, "listed-2", team="a")
    assert listed(shared_service, "--name", "listed") == [b, a]
    assert listed(shared_service, "--name", "liste") == []
    assert listed(shared_service, "-l", "team=a", "--limit", "1") == [other]
    assert set(listed(shared_service, "-l", "team=a")) >= {a, other} and b not in listed(shared_service, "-l", "team=a")
    assert listed(shared_service, "-l", "team=a", "-l", "size") == [a]
    assert listed(shared_service, "-l", "size", "--name", "listed", "--state", "QUEUED") == [b, a]
    assert listed(shared_service, "-l", "team=a", "--state", "SUCCEEDED") == []
    assert listed(shared_service, "-l", "tea=a") == listed(shared_service, "-l", "team=") == []
    created = shared_service.json("get", a)["create_time"]
    assert set(listed(shared_service, "--since", created)) >= {a, b, other}
    assert not {a, b, other} & set(listed(shared_service, "--before", created))
    assert set(listed(shared_service, "--since", "1h")) >= {a, b, other} and listed(shared_service, "--before", "1h") == []
    shared_service.cli("cancel", "-l", "team=a", "--yes")
    assert states(shared_service, [a, b, other]) == ["CANCELLED", "QUEUED", "CANCELLED"]
    shared_service.cli("cancel", b)


@pytest.mark.parametrize("text", ["5", "5x", "x", "-1h", "2026-11-21", ""])
def test_a_time_that_is_none_is_refused(shared_service, text):
    error = shared_service.cli("list", "--since", text, status=2).stderr
    assert error.startswith(f"trainyard: --since: '{text}' is neither a duration")


def test_pages_of_labelled_jobs_follow_each_other_without_a_gap(shared_service):
    jobs = [submitted(shared_service, "paged", page=str(i % 2)) for i in range(8)]
    for limit in range(1, 5):
        assert listed(shared_service, "-l", "page=1", "--limit", str(limit)) == [job for job in reversed(jobs) if jobs.index(job) % 2 == 1][:limit]
    shared_service.cli("cancel", *jobs)


def test_commands_for_several_jobs_do_what_is_possible_and_report_the_rest(shared_service):
    jobs = [submitted(shared_service, "many", batch="x") for _ in range(3)]
    assert shared_service.cli("pause", "-l", "batch=x").stdout.count(" PAUSED\n") == 3
    assert shared_service.cli("resume", jobs[0]).stdout == f"{jobs[0]} QUEUED\n"
    done = shared_service.cli("resume", *jobs, status=1)
    assert done.stdout == f"{jobs[1]} QUEUED\n{jobs[2]} QUEUED\n"
    assert done.stderr.endswith("trainyard: 1 of 3 jobs could not be resumed\n") and done.stderr.count("\n") == 2
    done = shared_service.cli("cancel", jobs[0], "999999", jobs[1], status=4)
    assert done.stdout.count(" CANCELLED\n") == 2 and "jobs/999999 does not exist" in done.stderr
    # Those that have ended are left alone.
    assert shared_service.cli("cancel", "-l", "batch=x", "--yes").stdout == f"{jobs[2]} CANCELLED\n"
    done = shared_service.cli("cancel", "-l", "batch=x", "--yes")
    assert done.stdout == "" and done.stderr == "none of the 3 selected jobs can be cancelled now\n"
    done = shared_service.cli("delete", "-l", "batch=x", "-y")
    assert done.stdout.count(" deleted\n") == 3 and done.stderr == "3 of 3 selected jobs were deleted\n"
    assert shared_service.cli("delete", "-l", "batch=x", "-y").stderr == "no job is selected\n"
    assert listed(shared_service, "-l", "batch=x") == []


def test_a_command_without_jobs_or_with_both_is_refused(shared_service):
    assert "cancel: name jobs, or select them with options" in shared_service.cli("cancel", status=2).stderr
    assert "not both" in shared_service.cli("cancel", "1", "-l", "team=a", status=2).stderr


def test_jobs_are_listed_by_user_with_columns_and_in_an_order(shared_service):
    me = pwd.getpwuid(os.geteuid()).pw_name
    b = submitted(shared_service, "order-b", order="x")
    a = submitted(shared_service, "order-a", order="x")
    selected = ("-l", "order=x")
    assert listed(shared_service, *selected, "--user", me) == [a, b] and listed(shared_service, *selected, "-u", "nobody-else") == []
    assert shared_service.json("get", a)["user"] == me
    assert listed(shared_service, *selected, "--sort", "name") == [a, b] and listed(shared_service, *selected, "--sort", "name", "-r") == [b, a]
    assert listed(shared_service, *selected, "--sort", "created", "--reverse") == [b, a]
    assert listed(shared_service, *selected, "--sort", "ended") == listed(shared_service, *selected, "--sort", "started") == []
    shared_service.cli("cancel", a)
    assert listed(shared_service, *selected, "--sort", "ended") == [a]
    assert listed(shared_service, *selected, "--sort", "state") == [b, a]
    table = shared_service.cli("list", *selected, "--columns", "name,JOB,user,labels,state").stdout.splitlines()
    assert [line.split() for line in table] == [["NAME", "JOB", "USER", "LABELS", "STATE"], ["order-a", a, me, "order=x", "CANCELLED"],
                                                ["order-b", b, me, "order=x", "QUEUED"]]
    shared_service.cli("cancel", b)


@pytest.mark.parametrize("arguments, problem", [
    (("--columns", "job,stat"), "--columns: there is no column 'stat': 'state' may be meant"),
    (("--columns", ""), "--columns: there is no column ''; columns are job, name, state,"),
    (("--sort", "size"), "--sort: 'size' is not one of: created, started, ended, name, state, user"),
    (("--limit", "0"), "--limit: 0 is not at least 1")])
def test_a_column_or_an_order_that_is_none_is_refused(shared_service, arguments, problem):
    assert shared_service.cli("list", *arguments, status=2).stderr.startswith("trainyard: " + problem)


def answered(service, answer, *arguments):
    """The exit status and the output of a command on a terminal whose user types `answer`."""
    ours, theirs = open_terminal()
    process = subprocess.Popen([BIN / "trainyard", *arguments], stdin=theirs, stdout=theirs, stderr=theirs,
                               env={**service.environment(), "TERM": "dumb"})
    os.close(theirs)
    text, sent = b"", False
    try:
        while piece := os.read(ours, 65536):
            text += piece
            if not sent and b"[y/N]" in text:
                sent = True
                os.write(ours, answer)
    except OSError:  # the command has ended
        pass
    os.close(ours)
    return process.wait(60 * PATIENCE), text.decode()


def test_a_selection_is_confirmed_before_it_is_cancelled(shared_service):
    jobs = [submitted(shared_service, f"asked-{i}", asked="x") for i in range(12)]
    done = shared_service.cli("cancel", "-l", "asked=x", status=2)
    assert done.stderr == "trainyard: cancel: the options select 12 jobs; add --yes to cancel them\n"
    for answer in (b"n\n", b"\n", b"\x04"):
        status, text = answered(shared_service, answer, "cancel", "-l", "asked=x")
        assert status == 3 and "cancel 12 jobs? [y/N]" in text and "and 2 more" in text and text.endswith("trainyard: no job was cancelled\r\n")
        assert set(states(shared_service, jobs)) == {"QUEUED"}
    status, text = answered(shared_service, b"y\n", "cancel", "-l", "asked=x")
    assert status == 0 and text.endswith("12 of 12 selected jobs were cancelled\r\n")
    assert set(states(shared_service, jobs)) == {"CANCELLED"}
