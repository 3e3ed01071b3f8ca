"""`program.progress`: a gang of which no rank reports anything is stopped with its stacks in the log, and retried."""

import json
import os
import re
import signal
import socket
import sys

import pytest

from service_fixture import descendants, process_start_time, wait_until

pytestmark = pytest.mark.waits

TIMEOUT = 5


def job_of(command, ranks=1, timeout=TIMEOUT, **more):
    more.setdefault("retry", {"max_restarts": 0})
    launcher = {"launcher": more.pop("launcher")} if "launcher" in more else {}
    return {"name": "hang", "program": {"command": command, "progress": {"timeout": timeout}, **launcher},
            "parallel": {"data": ranks}, **more}


def lines_of(service, job, stream, rank=None):
    return [line["text"] for line in service.json("logs", job)["lines"]
            if line["stream"] == stream and rank in (None, int(line.get("rank", 0)))]


def seconds_in(reason):
    seconds = int(re.search(r"for (\d+) s \(program.progress.timeout\)", reason)[1])
    assert seconds >= TIMEOUT
    return seconds


# Rank 1 hangs in a thread's lock after step 5, rank 0 waits for it after step 6. The second attempt ends at once.
PEERS = """
import os, socket, sys, threading

rank = int(os.environ["RANK"])
with open(os.environ["TRAINYARD_METRICS"], "w") as metrics:
    for step in range(6 if rank else 7):
        metrics.write('{"step": %d, "loss": 1}\\n' % step)

def load():
    threading.Event().wait()

def wait_for_peer():
    pair = socket.socketpair(); pair[0].recv(1)

if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
    load() if rank else wait_for_peer()
"""


def test_the_reason_names_the_rank_that_is_behind_and_the_stacks_of_all_ranks_are_logged(two_hosts):
    script = two_hosts.files / "peers.py"
    script.write_text(PEERS)
    job = two_hosts.submit(job_of([sys.executable, str(script)], ranks=2, retry={"max_restarts": 1}))
    ended = two_hosts.wait_end(job)
    assert ended["attempt"] == 2 and ended["restarts"] == 1
    reason = ended["attempts"][0]["reason"]
    assert reason.startswith("rank 1: is behind at step 5, rank 0 is at step 6: no rank has reported anything for")
    seconds_in(reason)
    for rank, function, line in ((0, "wait_for_peer", 13), (1, "load", 10)):
        lines = lines_of(two_hosts, job, "stacks", rank)
        assert f'  File "{script}", line {line} in {function}' in lines, lines
        assert any(text.startswith("process ") and str(script) in text for text in lines), lines
        assert any(re.match(r"  thread \d+ python3?[.\d]*: state S", text) for text in lines), lines
        assert not [text for text in lines_of(two_hosts, job, "stderr", rank) if "Fatal Python" in text]


def test_a_rank_may_be_silent_while_another_one_reports(shared_service):
    job = shared_service.submit(job_of(
        ["sh", "-c", f"test $RANK = 1 && sleep {2 * TIMEOUT + 2} || for i in 1 2 3 4 5 6; do echo $i; sleep 2; done"],
        ranks=2))
    assert shared_service.wait_end(job)["attempt"] == 1
    assert lines_of(shared_service, job, "stacks") == []


def test_each_kind_of_report_counts(shared_service):
    """Each job is silent for 9 s before and after its report, 18 s without it: a busy machine has 6 s to spare."""
    reports = ["echo line", "echo line >&2", "echo no metric > $TRAINYARD_METRICS", "echo > $TRAINYARD_METRICS",
               "echo '{\"step\": 1, \"loss\": 1}' > $TRAINYARD_METRICS",
               "cd $TRAINYARD_CHECKPOINTS; echo 1 > new; mv new step-1"]
    jobs = [shared_service.submit(job_of(["sh", "-c", f"sleep 9; {report}; sleep 9"], timeout=15)) for report in reports]
    for job, report in zip(jobs, reports):
        assert shared_service.wait_end(job)["attempt"] == 1, report


@pytest.mark.parametrize("launcher", ["ranks", "host"])
def test_processes_that_are_no_python_and_ignore_signals_are_listed_and_killed(service, launcher):
    job = service.submit(job_of(["sh", "-c", "trap '' TERM; setsid sleep 7000 & wait"], ranks=2, launcher=launcher))
    with service.watch(job) as watch:
        watch.until_state("RUNNING")
    processes = wait_until(lambda: {pid: process_start_time(pid) for rank, _ in service.worker_pids(job).values()
                                    for pid, line in descendants(rank).items() if "sleep 7000" in line}, 30, "the sleeps")
    reason = service.wait_end(job, "FAILED")["reason"]
    seconds_in(reason)
    assert reason.startswith("rank 0: was silent first" if launcher == "host" else "rank ")
    lines = lines_of(service, job, "stacks")
    assert any(re.fullmatch(r"process \d+: sleep 7000", text) for text in lines), lines
    assert any(re.match(r"  thread \d+ sleep: state S", text) for text in lines), lines
    wait_until(lambda: all(process_start_time(pid) != start for pid, start in processes.items()), 30, "their ends")


# Starts two ranks, which hang, and waits for them.
PARENT = """
import subprocess, sys, threading

def hang():
    threading.Event().wait()

def wait_for_ranks():
    ranks = [subprocess.Popen([sys.executable, __file__, "rank"]) for _ in range(2)]
    return [rank.wait() for rank in ranks]

hang() if "rank" in sys.argv else wait_for_ranks()
"""


def test_the_stacks_of_a_launcher_and_of_all_its_ranks_are_logged(service):
    script = service.files / "parent.py"
    script.write_text(PARENT)
    job = service.submit(job_of([sys.executable, str(script)], ranks=2, launcher="host"))
    service.wait_end(job, "FAILED")
    lines = lines_of(service, job, "stacks", 0)
    assert lines.count(f'  File "{script}", line 5 in hang') == 2, lines
    assert lines.count(f'  File "{script}", line 9 in wait_for_ranks') == 1, lines
    assert lines_of(service, job, "stacks", 1) == []


# Answers as NCCL's RAS service does, in pieces and with a long line.
RAS = """
import os, socket, sys, threading

def serve():
    listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
    while True:
        peer = listener.accept()[0]
        asked = peer.makefile("r")
        assert asked.readline() == "CLIENT PROTOCOL 2\\n"
        peer.sendall(b"SERVER PROT"); peer.sendall(b"OCOL 2\\n")
        assert asked.readline().startswith("TIMEOUT ")
        peer.sendall(b"OK\\n")
        assert asked.readline() == "VERBOSE STATUS\\n"
        peer.sendall(b"NCCL version 2.28.9\\nrank 1 is behind: AllReduce \\x1b[1m 5 of 6\\n" + b"x" * 2000 + b"\\n")
        if sys.argv[2] == "end": peer.close()

serve()
"""


@pytest.mark.parametrize("end", ["end", "hang"])
def test_what_nccl_reports_is_logged_before_the_stacks_whether_or_not_it_ends(service, end):
    script = service.files / "ras.py"
    script.write_text(RAS)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    job = service.submit({"name": "ras", "program": {
        "command": [sys.executable, str(script), str(port), end], "progress": {"timeout": TIMEOUT},
        "environment": {"NCCL_RAS_ADDR": f"localhost:{port}"}}, "retry": {"max_restarts": 0}})
    service.wait_end(job, "FAILED")
    lines = lines_of(service, job, "stacks")
    at = lines.index("NCCL's report:")
    assert lines[at + 1:at + 3] == ["NCCL version 2.28.9", "rank 1 is behind: AllReduce ?[1m 5 of 6"]
    assert "".join(lines[at + 3:at + 5]) == "x" * 2000
    assert any(line.startswith("process ") for line in lines[at + 5:]), lines


def test_an_address_of_another_machine_is_not_asked(service):
    job = service.submit({"name": "ras", "program": {
        "command": ["sleep", "7000"], "progress": {"timeout": TIMEOUT}, "environment": {"NCCL_RAS_ADDR": "192.0.2.1:28028"}},
        "retry": {"max_restarts": 0}})
    service.wait_end(job, "FAILED")
    lines = lines_of(service, job, "stacks")
    assert any("sleep 7000" in line for line in lines) and not any("NCCL" in line for line in lines)


def test_time_in_which_a_rank_was_stopped_is_no_silence(service):
    counted = service.files / "counted"
    job = service.submit(job_of(["sh", "-c", f"for i in $(seq 40); do echo > $TRAINYARD_METRICS; echo >> {counted}; sleep 0.5; done"]))
    with service.watch(job) as watch:
        watch.until_state("RUNNING")
    pid = service.worker_pids(job)[0][0]
    count = lambda: counted.stat().st_size if counted.exists() else 0
    wait_until(lambda: count() >= 1, 30, "the first line")
    os.kill(pid, signal.SIGSTOP)
    stopped = count()
    wait_until(lambda: count() >= stopped + 4 * TIMEOUT, 60, "lines for twice the timeout")
    os.kill(pid, signal.SIGCONT)
    assert service.wait_end(job)["attempt"] == 1


def test_a_hang_is_found_by_a_controller_that_starts_meanwhile(service):
    job = service.submit(job_of(["sh", "-c", "sleep 7000"]))
    with service.watch(job) as watch:
        watch.until_state("RUNNING")
    os.kill(service.pid_of("trainyard-controller"), signal.SIGKILL)
    reason = service.wait_end(job, "FAILED")["reason"]
    assert reason.startswith("rank 0: has reported nothing for "), reason
    seconds_in(reason)


def test_nothing_is_stopped_without_a_timeout_and_a_short_one_is_refused(shared_service):
    path = shared_service.directory / "refused.json"
    path.write_text(json.dumps({"name": "x", "program": {"command": ["true"], "progress": {"timeout": 4}}}))
    assert "program.progress.timeout: 4" in shared_service.cli("validate", path, status=2).stderr
    silent = {"name": "x", "program": {"command": ["sleep", str(TIMEOUT + 3)]}}
    assert shared_service.wait_end(shared_service.submit(silent))["attempt"] == 1
