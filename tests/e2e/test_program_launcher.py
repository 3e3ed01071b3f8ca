"""`launcher: host`: the command runs once on each host and starts the ranks itself, as torchrun does. Its ends, stops,
metrics, logs and failures are those of any program; the other ranks of the host follow it."""

import json
import os
import pathlib
import signal
import sys

import pytest

from service_fixture import descendants, make_service, process_start_time, wait_until

METRIC = 'echo "{\\"step\\": 1, \\"loss\\": 1}" > $TRAINYARD_METRICS; '


@pytest.fixture(scope="module")
def hosts():
    """Two executors of two slots each: a gang of four has two ranks on each."""
    yield from make_service(executors=2, slots=2)


def job_of(command, ranks, **more):
    return {"name": "launcher", "program": {"command": command, "launcher": "host"}, "parallel": {"data": ranks}, **more}


def shell(script, ranks, **more):
    return job_of(["sh", "-c", script], ranks, **more)


def lines_of(service, job, stream="stdout"):
    return [line["text"] for line in service.json("logs", job)["lines"] if line["stream"] == stream]


def commands_below(pid, part):
    return [child for child, line in descendants(pid).items() if part in line]


@pytest.mark.sanitized
def test_the_command_runs_once_on_each_host_with_the_variables_that_torchrun_reads(hosts):
    names = ["NNODES", "NODE_RANK", "NPROC_PER_NODE", "MASTER_ADDR", "MASTER_PORT", "RDZV_BACKEND", "RDZV_ENDPOINT",
             "RDZV_ID"]
    job = hosts.submit(shell("echo " + " ".join(f"{name}=$PET_{name}" for name in names) +
                             " env=$RANK$WORLD_SIZE$LOCAL_RANK$MASTER_ADDR$TORCHELASTIC_RUN_ID.", 4))
    hosts.wait_end(job)
    lines = sorted(lines_of(hosts, job))
    port = int(lines[0].partition("MASTER_PORT=")[2].split()[0])
    assert lines == [f"NNODES=2 NODE_RANK={node} NPROC_PER_NODE=2 MASTER_ADDR=127.0.0.1 MASTER_PORT={port} "
                     f"RDZV_BACKEND=static RDZV_ENDPOINT=127.0.0.1:{port} RDZV_ID={job} env=." for node in (0, 1)]


# As torchrun does: starts PET_NPROC_PER_NODE ranks with the variables of env://, and fails if one of them fails.
LAUNCHER = """
import os, subprocess, sys
n, node, port = (int(os.environ["PET_" + name]) for name in ("NPROC_PER_NODE", "NODE_RANK", "MASTER_PORT"))
ranks = []
for local in range(n):
    own = dict(os.environ, RANK=str(node * n + local), LOCAL_RANK=str(local), MASTER_PORT=str(port),
               WORLD_SIZE=str(n * int(os.environ["PET_NNODES"])))
    ranks.append(subprocess.Popen([sys.executable, *sys.argv[1:]], env=own))
failed = [rank.wait() for rank in ranks]
if any(failed):
    class ChildFailedError(Exception):
        pass
    raise ChildFailedError(f"a rank exited with {max(failed)}")
"""


def launch(service, script, ranks, **more):
    for name, text in (("launcher.py", LAUNCHER), ("train.py", script)):
        (service.files / name).write_text(text)
    return service.submit(job_of([sys.executable, str(service.files / "launcher.py"),
                                  str(service.files / "train.py")], ranks, **more))


def test_ranks_that_a_launcher_starts_find_each_other_and_their_metrics_are_the_jobs(hosts):
    job = launch(hosts, """
import os, socket
rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
address = ("127.0.0.1", int(os.environ["MASTER_PORT"]))
if rank == 0:
    with socket.create_server(address) as server:
        seen = sorted(int(server.accept()[0].recv(9)) for _ in range(1, world))
    print(seen)
    with open(os.environ["TRAINYARD_METRICS"], "w") as metrics:
        metrics.writelines('{"step": %d, "loss": 2}\\n' % step for step in range(100))
else:
    while True:
        try:
            connection = socket.create_connection(address)
            break
        except ConnectionRefusedError:
            pass
    connection.sendall(b"%d" % rank)
""", 4)
    ended = hosts.wait_end(job)
    assert ended["attempt"] == 1 and int(ended["step"]) == 99
    assert lines_of(hosts, job) == ["[1, 2, 3]"]
    assert hosts.metric(job, "loss") == {step: 2.0 for step in range(100)}


def test_the_reason_is_the_exception_of_the_rank_that_raised_not_that_of_its_launcher(hosts):
    job = launch(hosts, f"""
import os, time
raised = {str(hosts.files / 'raised')!r}
if os.environ["RANK"] == "1":
    open(os.environ["TRAINYARD_METRICS"], "w").write('{{"step": 1, "loss": 1}}\\n')
    import atexit
    atexit.register(lambda: open(raised, "w").close())
    raise KeyError("column")
while not os.path.exists(raised):
    time.sleep(0.01)
raise RuntimeError("[gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:31415")
""", 2, retry={"max_restarts": 0})
    reason = hosts.wait_end(job, "FAILED")["reason"]
    assert reason.startswith(f"rank 0: KeyError: 'column', at {hosts.files}/train.py:8 (exit status 1)"), reason


def test_a_command_that_fails_is_retried_with_all_its_ranks(hosts):
    job = hosts.submit(shell(METRIC + 'echo $TRAINYARD_ATTEMPT; test $TRAINYARD_ATTEMPT = 2 || exit 7', 4))
    ended = hosts.wait_end(job)
    assert ended["attempt"] == 2 and "'sh' exited with status 7" in ended["attempts"][0]["reason"]
    assert sorted(lines_of(hosts, job))[-2:] == ["2", "2"]


def start_endless(service):
    job = service.submit(shell(METRIC + "trap '' TERM; while :; do sleep 0.1; done", 2))
    with service.watch(job) as watch:
        watch.until_step(1)
    pids = {rank: pid for rank, (pid, _) in service.worker_pids(job).items()}
    assert len(commands_below(pids[0], "while :")) == 1 and not commands_below(pids[1], "while :")
    return job, pids, {child: process_start_time(child) for child in descendants(pids[0])}


def wait_gone(processes):
    wait_until(lambda: all(start is None or process_start_time(pid) != start for pid, start in processes.items()), 30,
               "the processes' end")


@pytest.mark.parametrize("rank", [0, 1])
def test_the_death_of_any_rank_ends_the_command_and_the_job_is_retried(service, rank):
    job, pids, processes = start_endless(service)
    os.kill(pids[rank], signal.SIGKILL)
    wait_gone(processes)
    with service.watch(job) as watch:
        watch.until(lambda u: int(u.get("event", {}).get("attempt", 0)) == 2, 60, "the second attempt")
    service.cli("cancel", job)
    service.wait_end(job, "CANCELLED")
    assert "killed by signal 9" in service.json("get", job)["attempts"][0]["reason"]


def test_a_stop_ends_the_command_and_then_the_ranks_that_follow_it(service):
    job, _, processes = start_endless(service)
    service.cli("cancel", job)
    service.wait_end(job, "CANCELLED")
    wait_gone(processes)
    saves = service.submit(shell("trap 'echo saved; exit 0' TERM; " + METRIC + "while :; do sleep 0.1; done", 2))
    with service.watch(saves) as watch:
        watch.until_step(1)
        service.cli("pause", saves)
        watch.until_state("PAUSED")
        service.cli("resume", saves)
        watch.until_state("RUNNING")
    assert "saved" in lines_of(service, saves)
    service.cli("cancel", saves)
    service.wait_end(saves, "CANCELLED")


STEPS = """
import mmap, os, struct, time
with open(os.environ["TRAINYARD_STOP"], "r+b") as f:
    shared = mmap.mmap(f.fileno(), 16)
metrics = open(os.environ["TRAINYARD_METRICS"], "w", buffering=1)
step = 0
while step < struct.unpack_from("=q", shared)[0]:
    step += 1
    time.sleep(0.02)
    struct.pack_into("=q", shared, 8, step)
    metrics.write('{"step": %d, "loss": 1}\\n' % step)
print("stopped after", step)
"""


def test_the_commands_of_all_hosts_get_the_stop_step(hosts):
    script = hosts.files / "steps.py"
    script.write_text(STEPS)
    spec = job_of([sys.executable, str(script)], 4)
    spec["program"]["stop"] = "step"
    job = hosts.submit(spec)
    with hosts.watch(job) as watch:
        watch.until_step(20)
        hosts.cli("pause", job)
        watch.until_state("PAUSED")
    lines = lines_of(hosts, job)
    assert len(lines) == 2 and all(line.startswith("stopped after ") for line in lines), lines
    hosts.cli("cancel", job)
    hosts.wait_end(job, "CANCELLED")


def test_a_launcher_that_does_not_exist_is_named(shared_service):
    path = shared_service.directory / "refused.json"
    path.write_text(json.dumps({"name": "x", "program": {"command": ["true"], "launcher": "mpi"}}))
    refused = shared_service.cli("validate", path, status=2).stderr
    assert "program.launcher" in refused and "ranks" in refused and "host" in refused


DDP = """
import os, sys, torch, torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record
from torch.nn.parallel import DistributedDataParallel

@record
def main():
    dist.init_process_group("gloo")
    torch.manual_seed(1)
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(1, 11):
        loss = (model(torch.ones(2, 4)) - dist.get_rank()).square().mean()
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        if dist.get_rank() == 0:
            with open(os.environ["TRAINYARD_METRICS"], "w") as metrics:
                metrics.write('{"step": %d, "loss": %r}\\n' % (step, loss.item()))
        if step == 5 and dist.get_rank() == 1 and "fail" in sys.argv:
            raise KeyError("column")
    os.write(1, f"sum {sum(p.sum().item() for p in model.parameters())}\\n".encode())
    dist.destroy_process_group()

if __name__ == "__main__":
    main()
"""


def torchrun():
    """torchrun beside the Python that has PyTorch."""
    pytest.importorskip("torch", reason=f"{sys.executable} has no PyTorch")
    path = pathlib.Path(sys.executable).parent / "torchrun"
    if not path.exists():
        pytest.skip(f"there is no {path}")
    return str(path)


@pytest.mark.parametrize("ranks", [2, 4])
def test_torchrun_trains_as_typed_on_one_host_and_on_two(hosts, ranks):
    command = torchrun()
    script = hosts.files / "ddp.py"
    script.write_text(DDP)
    job = hosts.submit(job_of([command, str(script)], ranks))
    hosts.wait_end(job)
    assert sorted(hosts.metric(job, "loss")) == list(range(1, 11))
    sums = [line for line in lines_of(hosts, job) if line.startswith("sum ")]
    assert len(sums) == ranks and len(set(sums)) == 1


def test_an_exception_below_torchrun_is_the_jobs_reason(hosts):
    command = torchrun()
    script = hosts.files / "ddp.py"
    script.write_text(DDP)
    job = hosts.submit(job_of([command, str(script), "fail"], 2, retry={"max_restarts": 0}))
    reason = hosts.wait_end(job, "FAILED")["reason"]
    assert f"KeyError: 'column', at {script}:19 in main" in reason, reason


ACCELERATE = """
import os, torch
from accelerate import Accelerator
accelerator = Accelerator(cpu=True)
model = torch.nn.Linear(4, 1)
model, optimizer = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1))
for step in range(1, 6):
    loss = (model(torch.ones(2, 4)) - accelerator.process_index).square().mean()
    optimizer.zero_grad(); accelerator.backward(loss); optimizer.step()
    if accelerator.is_main_process:
        with open(os.environ["TRAINYARD_METRICS"], "w") as metrics:
            metrics.write('{"step": %d, "loss": %r}\\n' % (step, loss.item()))
os.write(1, f"rank {accelerator.process_index} of {accelerator.num_processes}\\n".encode())
"""


@pytest.mark.parametrize("ranks, options", [
    (2, ""),
    (4, '--num_machines $PET_NNODES --machine_rank $PET_NODE_RANK --main_process_ip $PET_MASTER_ADDR '
        '--main_process_port $PET_MASTER_PORT --rdzv_backend static'),
])
def test_accelerate_launch_trains_on_one_host_as_typed_and_on_two_with_its_options(hosts, ranks, options):
    pytest.importorskip("accelerate", reason=f"{sys.executable} has no accelerate")
    script = hosts.files / "accelerated.py"
    script.write_text(ACCELERATE)
    command = pathlib.Path(sys.executable).parent / "accelerate"
    job = hosts.submit(shell(f"exec {command} launch --multi_gpu --num_processes {ranks} {options} {script}", ranks))
    hosts.wait_end(job)
    assert sorted(hosts.metric(job, "loss")) == list(range(1, 6))
    assert sorted(lines_of(hosts, job)) == [f"rank {rank} of {ranks}" for rank in range(ranks)]
