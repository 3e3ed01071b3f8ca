"""Programs that stop after a step on which all ranks agree, without communication of their own."""

import json
import os
import pathlib
import re
import signal
import sys

import pytest

from service_fixture import make_service, wait_until

STOPS = int(os.environ.get("TRAINYARD_STOPS", "3"))

# Steps of several ranks that wait for each other, as the all-reduce of data parallel training makes them do. Each rank
# prints the step after which it stopped, and continues behind it in the next attempt.
GANG = """
import mmap, os, socket, struct, sys, time
rank, ranks, state = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), sys.argv[1] + "/" + os.environ["RANK"]
step_s, publishes = float(sys.argv[2]), sys.argv[3] == "publishes"
with open(os.environ["TRAINYARD_STOP"], "r+b") as f:
    shared = mmap.mmap(f.fileno(), 16)
metrics = open(os.environ["TRAINYARD_METRICS"], "w", buffering=1)
if rank == 0:
    server = socket.create_server(("", int(os.environ["MASTER_PORT"])), backlog=ranks)
    peers = [server.accept()[0] for _ in range(ranks - 1)]
else:
    while True:
        try:
            peers = [socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])))]
            break
        except ConnectionRefusedError:
            time.sleep(0.01)
for peer in peers:
    peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
step = int(open(state).read()) if os.path.exists(state) else 0
while True:
    time.sleep(step_s)
    for peer in peers if rank == 0 else []:
        assert peer.recv(1), "a rank is gone"
    for peer in peers:
        peer.sendall(b"x")
    for peer in peers if rank else []:
        assert peer.recv(1), "rank 0 is gone"
    step += 1
    if rank == 0:
        metrics.write('{"step": %d, "loss": 1}\\n' % step)
    if publishes:
        struct.pack_into("=q", shared, 8, step)
    if step >= struct.unpack_from("=q", shared)[0]:
        if rank == int(os.environ.get("SLOW_RANK", "-1")):
            print("saves", flush=True)
            time.sleep(14)
        with open(state, "w") as f:
            f.write(str(step))
        print("stopped after", step)
        sys.exit(0)
"""


@pytest.fixture
def four_slots():
    """Two executors of two slots each."""
    yield from make_service(executors=2, slots=2)


def gang(folder, ranks, step_s, how="publishes", **more):
    folder.mkdir()
    return {"name": "gang", "parallel": {"data": ranks},
            "program": {"command": [sys.executable, "-c", GANG, str(folder), str(step_s), how], "stop": "step"}, **more}


def stops_of(service, job, ranks):
    """The steps after which the ranks stopped, a list for each attempt."""
    text = service.cli("logs", job, "-o", "json").stdout
    lines = [(int(line["attempt"]), int(line["text"].split()[-1])) for line in (json.loads(text)["lines"] if text else [])
             if line["text"].startswith("stopped after ")]
    found = [[step for attempt, step in lines if attempt == number] for number in sorted({a for a, _ in lines})]
    assert all(len(steps) == ranks for steps in found), found
    return found


def pause_and_resume(service, job, times):
    last = 0
    for attempt in range(1, times + 1):
        with service.watch(job) as watch:
            watch.until(lambda u: int(u.get("progress", {}).get("step", 0)) > last, 60, "a step of this attempt")
        service.cli("pause", job, "--wait")
        stops = stops_of(service, job, 4)
        assert len(stops) == attempt
        last = stops[-1][0]
        if attempt < times:
            service.cli("resume", job)


def test_four_ranks_on_two_hosts_stop_after_the_same_step_at_every_pause(four_slots, tmp_path):
    job = four_slots.submit(gang(tmp_path / "state", 4, 0.005))
    pause_and_resume(four_slots, job, STOPS)
    stops = stops_of(four_slots, job, 4)
    assert all(len(set(steps)) == 1 for steps in stops), stops
    assert [steps[0] for steps in stops] == sorted({steps[0] for steps in stops})
    assert not [e for e in four_slots.json("events", job)["events"] if e["kind"] == "stop_step_missed"]
    four_slots.cli("cancel", job)
    four_slots.wait_end(job, "CANCELLED")


def test_the_steps_of_metrics_are_enough_to_agree(shared_service, tmp_path):
    job = shared_service.submit(gang(tmp_path / "state", 2, 0.02, "silent"))
    with shared_service.watch(job) as watch:
        watch.until_step(5)
    shared_service.cli("pause", job, "--wait")
    (steps,) = stops_of(shared_service, job, 2)
    assert len(set(steps)) == 1, steps
    shared_service.cli("cancel", job)
    shared_service.wait_end(job, "CANCELLED")


def test_a_program_that_has_reported_no_step_is_stopped_by_a_signal(shared_service):
    job = shared_service.submit({"name": "starting", "program": {
        "command": ["sh", "-c", "trap 'echo caught; exit 1' TERM; echo ready; while :; do sleep 0.05; done"], "stop": "step"}})
    with shared_service.watch(job) as watch:
        watch.until_state("RUNNING")
    wait_until(lambda: "ready" in shared_service.cli("logs", job).stdout, 60, "the trap")
    shared_service.cli("pause", job, "--wait")
    assert "caught" in shared_service.cli("logs", job).stdout
    shared_service.cli("cancel", job)
    shared_service.wait_end(job, "CANCELLED")


# One step every 10 ms, the first of which is said in the log.
FIRST_STEP = """
import mmap, os, struct, time
with open(os.environ["TRAINYARD_STOP"], "r+b") as f:
    shared = mmap.mmap(f.fileno(), 16)
time.sleep(1)
for step in range(1, 1 << 20):
    struct.pack_into("=q", shared, 8, step)
    if step == 1: print("at step 1", flush=True)
    if step >= struct.unpack_from("=q", shared)[0]: break
    time.sleep(0.01)
print("stopped after", step)
"""


def test_a_program_that_has_just_finished_its_first_step_is_stopped_after_a_step(shared_service):
    for _ in range(3):
        job = shared_service.submit({"name": "first", "program": {"command": [sys.executable, "-c", FIRST_STEP], "stop": "step"}})
        wait_until(lambda: "at step 1" in shared_service.cli("logs", job).stdout, 60, "the first step")
        shared_service.cli("pause", job, "--wait")
        assert "stopped after" in shared_service.cli("logs", job).stdout
        shared_service.cli("cancel", job)


def test_a_cancelled_program_is_not_asked_to_finish_a_step(shared_service, tmp_path):
    job = shared_service.submit(gang(tmp_path / "state", 2, 0.02))
    with shared_service.watch(job) as watch:
        watch.until_step(5)
    shared_service.cli("cancel", job)
    shared_service.wait_end(job, "CANCELLED")
    assert stops_of(shared_service, job, 2) == []


def test_a_program_that_ignores_its_stop_step_is_still_stopped_by_a_cancel(shared_service):
    job = shared_service.submit({"name": "deaf", "program": {"command": [
        "sh", "-c", 'i=0; while :; do i=$((i + 1)); echo "{\\"step\\": $i, \\"loss\\": 1}" > $TRAINYARD_METRICS; '
                    "sleep 0.02; done"], "stop": "step"}})
    with shared_service.watch(job) as watch:
        watch.until_step(5)
    shared_service.cli("pause", job)
    shared_service.cli("cancel", job)
    shared_service.wait_end(job, "CANCELLED")


def test_ranks_whose_rank_0_has_already_ended_are_stopped(shared_service):
    """Nobody chooses a stop step: the others must not wait for it until their ten minutes are over."""
    job = shared_service.submit({"name": "first-leaves", "parallel": {"data": 2}, "program": {
        "command": ["sh", "-c", "test $RANK = 0 && exit 0; trap 'echo caught; exit 1' TERM; echo ready; "
                                "while :; do sleep 0.05; done"], "stop": "step"}})
    wait_until(lambda: "ready" in shared_service.cli("logs", job).stdout, 60, "the trap")
    wait_until(lambda: any(e["kind"] == "rank_ended" for e in shared_service.json("events", job)["events"]), 60,
               "the end of rank 0")
    shared_service.cli("pause", job, "--wait")
    assert "caught" in shared_service.cli("logs", job).stdout
    shared_service.cli("cancel", job)
    shared_service.wait_end(job, "CANCELLED")


def test_a_stop_step_survives_the_controllers_death(four_slots, tmp_path):
    job = four_slots.submit(gang(tmp_path / "state", 4, 0.005))
    with four_slots.watch(job) as watch:
        watch.until_step(200)
    four_slots.cli("pause", job)
    os.kill(four_slots.pid_of("trainyard-controller"), signal.SIGKILL)
    wait_until(lambda: four_slots.json("get", job)["state"] == "PAUSED", 90, "the pause")
    (steps,) = stops_of(four_slots, job, 4)
    assert len(set(steps)) == 1, steps
    four_slots.cli("cancel", job)
    four_slots.wait_end(job, "CANCELLED")


def test_a_rank_that_saves_for_long_is_not_cut_by_a_second_stop_order(four_slots, tmp_path):
    """The next leader repeats the order when rank 0 has ended and can repeat its step no more."""
    spec = gang(tmp_path / "state", 2, 0.005)
    spec["program"]["environment"] = {"SLOW_RANK": "1"}
    job = four_slots.submit(spec)
    with four_slots.watch(job) as watch:
        watch.until_step(200)
    four_slots.cli("pause", job)
    wait_until(lambda: "saves" in four_slots.cli("logs", job).stdout, 60, "the slow rank's save")
    wait_until(lambda: (tmp_path / "state" / "0").exists(), 60, "rank 0's save")
    os.kill(four_slots.pid_of("trainyard-controller"), signal.SIGKILL)
    wait_until(lambda: four_slots.json("get", job)["state"] == "PAUSED", 90, "the pause")
    (steps,) = stops_of(four_slots, job, 2)
    assert steps[0] == steps[1], steps
    four_slots.cli("cancel", job)
    four_slots.wait_end(job, "CANCELLED")


def code_of_the_docs(*starts):
    """The examples of docs/program.md that begin with these words."""
    text = (pathlib.Path(__file__).parents[2] / "docs/program.md").read_text()
    examples = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    return "\n".join(next(example for example in examples if example.startswith(start)) for start in starts)


TRAINER = """
import mmap, os, struct, sys, torch, transformers
{docs}
class Data(torch.utils.data.Dataset):
    def __len__(self): return 100000
    def __getitem__(self, i): return {{"x": torch.full((4,), i % 7 / 7.0), "labels": torch.tensor([1.0])}}
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 1)
    def forward(self, x, labels):
        out = self.linear(x)
        return {{"loss": (out - labels).square().mean(), "logits": out}}
args = transformers.TrainingArguments(sys.argv[1], max_steps=100000, per_device_train_batch_size=2, report_to="none",
                                      save_strategy="no", logging_steps=10 ** 9, use_cpu=True, disable_tqdm=True)
trainer = transformers.Trainer(Model(), args, train_dataset=Data(), callbacks=[StopCallback()])
trainer.train()
print("stopped after", trainer.state.global_step, flush=True)
"""

LIGHTNING = """
import mmap, os, struct, sys, torch, lightning
{docs}
class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 1)
    def training_step(self, batch, index): return self.linear(batch).square().mean()
    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), lr=0.01)
trainer = lightning.Trainer(max_steps=100000, accelerator="cpu", devices=1, num_nodes=int(os.environ["WORLD_SIZE"]),
                            strategy="ddp", logger=False, enable_checkpointing=False, enable_progress_bar=False,
                            callbacks=[StopCallback(sys.argv[1] + "/stopped.ckpt")])
trainer.fit(Model(), torch.utils.data.DataLoader(torch.ones(100000, 4), batch_size=2))
print("stopped after", trainer.global_step, flush=True)
"""


def paused_by_its_callback(service, folder, code):
    job = service.submit({"name": "framework", "parallel": {"data": 2},
                          "program": {"command": [sys.executable, "-c", code, str(folder)], "stop": "step"}})
    wait_until(lambda: "at step" in service.cli("logs", job).stdout, 120, "the first steps")
    service.cli("pause", job, "--wait")
    (steps,) = stops_of(service, job, 2)
    assert steps[0] == steps[1] > 0, steps
    service.cli("cancel", job)
    service.wait_end(job, "CANCELLED")
    return steps[0]


# Says in the log that the job has begun to train.
REACHED = """
class StopStep(StopStep):
    def reached(self, step):
        if step == 5: print("at step 5", flush=True)
        return super().reached(step)
"""


def test_the_callback_of_the_docs_stops_and_saves_a_trainer_of_hugging_face(two_hosts, tmp_path):
    pytest.importorskip("transformers", reason=f"{sys.executable} has no transformers")
    docs = code_of_the_docs("class StopStep", "class StopCallback(transformers") + REACHED
    step = paused_by_its_callback(two_hosts, tmp_path, TRAINER.format(docs=docs))
    assert (tmp_path / f"checkpoint-{step}" / "trainer_state.json").exists()


def test_the_callback_of_the_docs_stops_and_saves_a_trainer_of_lightning(two_hosts, tmp_path):
    pytest.importorskip("lightning", reason=f"{sys.executable} has no Lightning")
    docs = code_of_the_docs("class StopStep", "class StopCallback(lightning") + REACHED
    step = paused_by_its_callback(two_hosts, tmp_path, LIGHTNING.format(docs=docs))
    import torch
    assert torch.load(tmp_path / "stopped.ckpt", weights_only=False)["global_step"] == step
