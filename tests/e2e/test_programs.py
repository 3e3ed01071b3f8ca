"""Programs of the user's in place of a model: a gang of processes with PyTorch's variables, metrics as lines of JSON,
logs, exit statuses, stops; and no process is left behind."""

import json
import os
import signal
import sys

import pytest

from service_fixture import descendants, make_service, process_start_time, wait_until

ENDLESS = "while :; do sleep 0.1; done"


def program(script, *arguments, ranks=1, **more):
    """A job that runs a script of the shell."""
    return {"name": "program", "program": {"command": ["sh", "-c", script, "sh", *arguments]},
            "parallel": {"data": ranks}, **more}


def log_lines(service, job, stream="stdout"):
    return [line["text"] for line in service.json("logs", job)["lines"] if line["stream"] == stream]


def events(service, job, kind):
    return [event["message"] for event in service.json("events", job)["events"] if event["kind"] == kind]


def tree_of(service, job):
    """{pid: start time} of every process below the job's ranks."""
    found = {}
    for pid, start in service.worker_pids(job).values():
        found[pid] = start
        found.update({child: process_start_time(child) for child in descendants(pid)})
    return {pid: start for pid, start in found.items() if start is not None}  # the others have ended meanwhile


def wait_gone(processes):
    wait_until(lambda: all(process_start_time(pid) != start for pid, start in processes.items()), 30, "the processes' end")


def test_each_rank_gets_the_variables_that_torchrun_sets(two_hosts):
    names = ["RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE", "ROLE_RANK",
             "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_RUN_ID",
             "TRAINYARD_JOB", "TRAINYARD_ATTEMPT", "TRAINYARD_RANK", "GREETING"]
    spec = program("echo " + " ".join(f"{name}=${name}" for name in names), ranks=2)
    spec["program"]["environment"] = {"GREETING": "a b"}
    job = two_hosts.submit(spec)
    assert two_hosts.wait_end(job)["attempt"] == 1
    lines = sorted(log_lines(two_hosts, job))
    assert len(lines) == 2
    port = lines[0].partition("MASTER_PORT=")[2].split()[0]
    assert 1024 < int(port) < 65536
    for rank, line in enumerate(lines):
        assert line == (f"RANK={rank} WORLD_SIZE=2 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 GROUP_RANK={rank} "
                        f"GROUP_WORLD_SIZE=2 ROLE_RANK={rank} ROLE_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 "
                        f"MASTER_PORT={port} TORCHELASTIC_RESTART_COUNT=0 TORCHELASTIC_RUN_ID={job} "
                        f"TRAINYARD_JOB={job} TRAINYARD_ATTEMPT=1 TRAINYARD_RANK={rank} GREETING=a b")


@pytest.mark.sanitized
def test_lines_of_json_become_metrics_of_each_rank(shared_service):
    job = shared_service.submit(program(
        'for i in $(seq 0 199); do echo "{\\"step\\": $i, \\"loss\\": 1.5e-1, \\"rank\\": $RANK}"; done > $TRAINYARD_METRICS',
        ranks=2))
    ended = shared_service.wait_end(job)
    assert int(ended["step"]) == 199 and not ended.get("reason")
    assert shared_service.metric(job, "loss") == {step: 0.15 for step in range(200)}
    for rank in (0, 1):
        assert shared_service.metric(job, "rank", rank) == {step: float(rank) for step in range(200)}


def test_a_line_that_is_no_metric_is_refused_by_an_event_and_the_program_goes_on(shared_service):
    wrong = ['nonsense', '[1]', '{"loss": 1}', '{"step": -1, "loss": 1}', '{"step": 1, "loss": "x"}',
             '{"step": 9223372036854775807, "loss": 1}', '{"step": 1, "a b": 1}', '{"step": 1, "loss": 1, "loss": 2}', '{"step": 1' + " " * 5000 + "}"]
    job = shared_service.submit(program(
        'for line; do printf "%s\\n" "$line" > $TRAINYARD_METRICS; done; '
        'echo "{\\"step\\": 7, \\"loss\\": 2}" > $TRAINYARD_METRICS', *wrong))
    shared_service.wait_end(job)
    assert shared_service.metric(job, "loss") == {7: 2.0}
    told = events(shared_service, job, "metric_refused")
    assert len(told) == len(wrong), told
    for sentence, part in zip(told, ["nonsense", "is no JSON object", "step is not an integer", "step is not an integer",
                                     "loss is not a number", "step is not an integer from 0 to 2^53", "a b is no name", "duplicate", "longer than 4096"]):
        assert part in sentence, told


def test_bytes_that_are_no_text_harm_no_other_job_of_the_executor(shared_service):
    job = shared_service.submit(program(
        'printf "\\377\\376\\n" > $TRAINYARD_METRICS; printf "%s\\n" "$1" > $TRAINYARD_METRICS; '
        'printf "\\377 log\\n"; printf \'{"step": 1, "loss": 4}\' > $TRAINYARD_METRICS', "x" * 79 + "é" * 20))
    shared_service.wait_end(job)
    assert shared_service.metric(job, "loss") == {1: 4.0}, "the last line needs no newline"
    assert len(events(shared_service, job, "metric_refused")) == 2
    after = shared_service.submit(program('echo "{\\"step\\": 1, \\"loss\\": 5}" > $TRAINYARD_METRICS'))
    shared_service.wait_end(after)
    assert shared_service.metric(after, "loss") == {1: 5.0}
    path = shared_service.directory / "refused.json"
    path.write_text(json.dumps({"name": "x", "program": {"command": ["/" + "é" * 150]}}))
    assert "cannot be executed" in shared_service.cli("submit", path, status=2).stderr
    missing = shared_service.submit({"name": "x", "program": {"command": ["/" + "é" * 150]}}, "--skip-check")
    assert "cannot be executed" in shared_service.wait_end(missing, "FAILED")["reason"]


def test_a_command_that_fails_before_its_first_metric_is_not_retried_and_one_that_fails_later_is(shared_service):
    first = shared_service.submit(program("echo no such thing >&2; exit 3"))
    ended = shared_service.wait_end(first, "FAILED")
    assert ended["attempt"] == 1 and "'sh' exited with status 3 before it reported a metric" in ended["reason"]
    assert log_lines(shared_service, first, "stderr") == ["no such thing"]
    later = shared_service.submit(program(
        'echo "{\\"step\\": 1, \\"loss\\": 1}" > $TRAINYARD_METRICS; test $TORCHELASTIC_RESTART_COUNT = 1 || kill -SEGV $$'))
    ended = shared_service.wait_end(later)
    assert ended["attempt"] == 2 and ended["restarts"] == 1
    assert "killed by signal 11" in ended["attempts"][0]["reason"]


def test_a_rank_that_reports_no_metric_may_fail_later_and_the_job_is_retried(shared_service):
    job = shared_service.submit(program(
        'test $RANK = 0 && echo "{\\"step\\": 1, \\"loss\\": 1}" > $TRAINYARD_METRICS; '
        'test $RANK = 0 || test $TORCHELASTIC_RESTART_COUNT = 1 || { sleep 1; exit 3; }; sleep 2', ranks=2))
    ended = shared_service.wait_end(job)
    assert ended["attempt"] == 2 and "rank 1: 'sh' exited with status 3" in ended["attempts"][0]["reason"]


def test_a_program_that_continues_by_itself_keeps_the_metrics_of_its_earlier_attempts(shared_service):
    job = shared_service.submit(program(
        'from=$((TORCHELASTIC_RESTART_COUNT * 5)); for i in $(seq $from $((from + 7))); do '
        'echo "{\\"step\\": $i, \\"attempt\\": $TRAINYARD_ATTEMPT}"; done > $TRAINYARD_METRICS; '
        'test $TORCHELASTIC_RESTART_COUNT = 1 || kill -KILL $$'))
    shared_service.wait_end(job)
    assert shared_service.metric(job, "attempt") == {**{s: 1.0 for s in range(5)}, **{s: 2.0 for s in range(5, 13)}}
    csv = shared_service.cli("export", job, "--csv", "-").stdout
    assert sum(line.split(",")[0].strip() != "" for line in csv.splitlines()[1:]) >= 13


def test_the_command_is_searched_in_the_path_that_the_spec_gives(shared_service):
    folder = shared_service.files / "own"
    folder.mkdir()
    (folder / "own-program").write_text("#!/bin/sh\necho found in $PATH\n")
    (folder / "own-program").chmod(0o755)
    job = shared_service.submit({"name": "path", "program": {
        "command": ["own-program"], "environment": {"PATH": f"{folder}:/usr/bin:/bin"}}})
    shared_service.wait_end(job)
    assert log_lines(shared_service, job) == [f"found in {folder}:/usr/bin:/bin"]


@pytest.mark.parametrize("command, sentence", [
    (["no-such-program"], "program.command[0]: 'no-such-program' cannot be executed: No such file or directory"),
    (["/etc/passwd"], "program.command[0]: '/etc/passwd' cannot be executed: Permission denied"),
    (["/usr"], "program.command[0]: '/usr' cannot be executed: Is a directory"),
    ([], "program.command: must not be empty"),
    ([""], "program.command[0]: must not be empty"),
])
def test_a_command_that_cannot_run_is_refused_before_it_takes_a_slot(shared_service, command, sentence):
    path = shared_service.directory / "refused.json"
    path.write_text(json.dumps({"name": "x", "program": {"command": command}}))
    assert sentence in shared_service.cli("submit", path, status=2).stderr


@pytest.mark.parametrize("more, sentence", [
    ({"model": {"gpt": {}}}, "model: cannot be given with program"),
    ({"train": {"steps": 1}}, "train: cannot be given with program"),
    ({"parallel": {"pipeline": 2}}, "parallel.pipeline: is for a model"),
    ({"program": {"command": ["true"], "environment": {"TRAINYARD_RANK": "1"}}}, "are the service's"),
    ({"program": {"command": ["true"], "environment": {"1A": "1"}}}, "program.environment: '1A'"),
])
def test_what_a_program_cannot_have_is_named(shared_service, more, sentence):
    path = shared_service.directory / "refused.json"
    path.write_text(json.dumps({"name": "x", "program": {"command": ["true"]}, **more}))
    assert sentence in shared_service.cli("validate", path, status=2).stderr


STUBBORN = ("trap '' TERM; setsid sh -c \"trap '' TERM; sleep 7000 & wait\" & sleep 7000 & "
            'echo "{\\"step\\": 1, \\"loss\\": 1}" > $TRAINYARD_METRICS; ' + ENDLESS)


def start_stubborn(service):
    """A program whose processes ignore SIGTERM, and one of them has left its session."""
    job = service.submit(program(STUBBORN, ranks=2))
    with service.watch(job) as watch:
        watch.until_step(1)
    wait_until(lambda: sum("sleep 7000" in line for pid, _ in service.worker_pids(job).values()
                           for line in descendants(pid).values()) >= 4, 30, "the sleeps")
    return job, tree_of(service, job)


@pytest.mark.sanitized
def test_a_cancel_ends_processes_that_ignore_signals_and_those_that_left_their_session(service):
    job, processes = start_stubborn(service)
    service.cli("cancel", job)
    service.wait_end(job, "CANCELLED")
    wait_gone(processes)


def test_what_a_shell_has_started_may_finish_after_a_stop(service):
    job = service.submit(program(
        "sh -c 'trap \"sleep 1; echo saved; exit 0\" TERM; "
        "echo \"{\\\"step\\\": 1, \\\"loss\\\": 1}\" > $TRAINYARD_METRICS; while :; do sleep 0.1; done'; echo not reached"))
    with service.watch(job) as watch:
        watch.until_step(1)
        service.cli("pause", job)
        watch.until_state("PAUSED")
    assert "saved" in log_lines(service, job)
    service.cli("cancel", job)
    service.wait_end(job, "CANCELLED")


def test_no_process_outlives_a_rank_that_was_killed(service):
    job, processes = start_stubborn(service)
    for pid, _ in service.worker_pids(job).values():
        os.kill(pid, signal.SIGKILL)
    wait_gone(processes)
    service.cli("cancel", job)
    service.wait_end(job, "CANCELLED")


def test_no_process_of_a_program_outlives_its_executor(service):
    job, processes = start_stubborn(service)
    executor = next(pid for pid, line in descendants(service.up.pid).items() if "trainyard-executor " in line)
    os.kill(executor, signal.SIGKILL)
    wait_gone(processes)
    with service.watch(job) as watch:
        watch.until_state("RUNNING")
    service.cli("cancel", job)
    service.wait_end(job, "CANCELLED")


def test_a_program_is_paused_and_resumed(service):
    job = service.submit(program('echo "{\\"step\\": 1, \\"loss\\": 1}" > $TRAINYARD_METRICS; ' + ENDLESS, ranks=2))
    with service.watch(job) as watch:
        watch.until_step(1)
        service.cli("pause", job)
        watch.until_state("PAUSED")
        service.cli("resume", job)
        watch.until_state("RUNNING")
    ended = service.json("get", job)
    assert ended["attempt"] == 2 and int(ended.get("restarts", 0)) == 0
    service.cli("cancel", job)
    service.wait_end(job, "CANCELLED")


def test_a_watch_shows_the_last_step_of_a_burst_though_no_other_follows(shared_service):
    job = shared_service.submit(program(
        'exec 9> $TRAINYARD_METRICS; for i in 1 2 3 4 5 6 7 8; do echo "{\\"step\\": $i, \\"loss\\": 1}" >&9; '
        f"sleep 0.03; done; {ENDLESS}"))
    with shared_service.watch(job) as watch:
        watch.until_step(8)
    shared_service.cli("cancel", job)
    shared_service.wait_end(job, "CANCELLED")


REPEATS = ('for i in $(seq 1 9); do echo "{\\"step\\": $i, \\"loss\\": %s, \\"step_ms\\": $TRAINYARD_ATTEMPT}"; done '
           '> $TRAINYARD_METRICS; exit $((1 - TORCHELASTIC_RESTART_COUNT))')


def test_an_attempt_that_repeats_steps_with_the_same_bits_has_no_event(shared_service):
    job = shared_service.submit(program(REPEATS % "$i.5", retry={"max_restarts": 1}))
    assert shared_service.wait_end(job)["attempt"] == 2
    assert shared_service.metric(job, "step_ms") == {step: 2.0 for step in range(1, 10)}
    assert not events(shared_service, job, "not_repeatable")


def test_an_attempt_that_repeats_a_step_with_other_bits_has_one_event(shared_service):
    job = shared_service.submit(program(REPEATS % "$TRAINYARD_ATTEMPT.5", ranks=2, retry={"max_restarts": 1}))
    assert shared_service.wait_end(job)["attempt"] == 2
    event, = events(shared_service, job, "not_repeatable")
    assert "at step 1 was 1.5 in attempt 1 and is 2.5 in attempt 2" in event


def test_a_watch_shows_the_step_of_metrics_of_any_name(shared_service):
    job = shared_service.submit(program('echo "{\\"step\\": 7, \\"train/loss\\": 1}" > $TRAINYARD_METRICS; ' + ENDLESS))
    with shared_service.watch(job) as watch:
        watch.until_step(7)
    shared_service.cli("cancel", job)
    shared_service.wait_end(job, "CANCELLED")


def test_an_attempt_that_repeats_one_metric_hides_no_other(shared_service):
    """As a logger does that writes a constant at step 0 of each attempt."""
    job = shared_service.submit(program(
        'put() { echo "{\\"step\\": $1, \\"$2\\": $3}"; }; exec 9> $TRAINYARD_METRICS; put 0 constant -1 >&9; '
        'if test $TORCHELASTIC_RESTART_COUNT = 0; then for i in $(seq 0 9); do put $i loss 1 >&9; done; exit 1; fi; '
        'for i in $(seq 7 12); do put $i loss 2 >&9; done', retry={"max_restarts": 1}))
    assert shared_service.wait_end(job)["attempt"] == 2
    assert shared_service.metric(job, "loss") == {**{step: 1.0 for step in range(7)}, **{step: 2.0 for step in range(7, 13)}}
    assert shared_service.metric(job, "constant") == {0: -1.0}
    rows = shared_service.cli("export", job, "--csv", "-").stdout.splitlines()
    assert [row.split(",")[3] for row in rows if row.startswith("loss,")] == [str(step) for step in range(13)]


def test_a_program_leaves_no_folder_behind_even_if_its_rank_was_killed(service):
    keep = program("mkdir -p a/b; touch a/b/c; chmod 500 a/b; echo $PWD; "
                   'echo "{\\"step\\": 1, \\"loss\\": 1}" > $TRAINYARD_METRICS; '
                   "test $TORCHELASTIC_RESTART_COUNT = 1 || sleep 7000")
    job = service.submit(keep)
    with service.watch(job) as watch:
        watch.until_step(1)
    for pid, _ in service.worker_pids(job).values():
        os.kill(pid, signal.SIGKILL)
    service.wait_end(job)
    folders = log_lines(service, job)
    assert len(folders) == 2
    assert not [folder for folder in folders if os.path.exists(os.path.dirname(folder))]


@pytest.fixture
def closed_service():
    """Other users of the machine can call it."""
    yield from make_service(executors=1, slots=2, options=["--listen", "127.0.0.1:0"])


def test_an_executor_runs_no_program_unless_its_operator_allows_it(closed_service):
    path = closed_service.directory / "program.json"
    path.write_text(json.dumps(program("true")))
    refused = closed_service.cli("submit", path, status=2).stderr
    assert "program: this executor runs no programs of users: it was started without --allow-programs" in refused
    job = closed_service.submit({**program("true"), "retry": {"max_restarts": 0}}, "--skip-check")
    assert "--allow-programs" in closed_service.wait_end(job, "FAILED")["reason"]


DDP = """
import os, torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
dist.init_process_group("gloo")
torch.manual_seed(1)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
with open(os.environ["TRAINYARD_METRICS"], "w", buffering=1) as metrics:
    for step in range(1, 21):
        loss = (model(torch.ones(2, 4)) - dist.get_rank()).square().mean()
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        metrics.write('{"step": %d, "loss": %r}\\n' % (step, loss.item()))
print(sum(p.sum().item() for p in model.parameters()))
dist.destroy_process_group()
"""


def test_ddp_of_pytorch_trains_unchanged_over_env(shared_service):
    pytest.importorskip("torch", reason=f"{sys.executable} has no PyTorch")
    job = shared_service.submit({"name": "ddp", "program": {"command": [sys.executable, "-c", DDP]},
                                 "parallel": {"data": 2}})
    shared_service.wait_end(job)
    assert sorted(shared_service.metric(job, "loss")) == list(range(1, 21))
    sums = log_lines(shared_service, job)
    assert len(sums) == 2 and sums[0] == sums[1]
