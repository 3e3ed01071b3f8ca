"""Checkpoints of programs: committed when they are complete, verified before an attempt resumes from them, kept by
keep_last, and deleted with the job. The programs are plain Python, and write files as each framework does."""

import contextlib
import json
import os
import pathlib
import random
import signal
import sys

import pytest

from service_fixture import descendants, make_service, wait_until

PRELUDE = """
import json, os, signal, sys, time, zipfile
folder, resume, rank = os.environ["TRAINYARD_CHECKPOINTS"], os.environ["TRAINYARD_RESUME"], int(os.environ["RANK"])
attempt = int(os.environ["TRAINYARD_ATTEMPT"])
metrics = open(os.environ["TRAINYARD_METRICS"], "w", buffering=1)
def report(step):
    metrics.write(json.dumps({"step": step, "attempt": attempt}) + "\\n")
def write(path, text):
    with open(path, "w") as f: f.write(text)
def save(step, name="step-%d"):
    path = os.path.join(folder, name % step)
    os.mkdir(path + ".tmp")
    write(path + ".tmp/state.json", json.dumps({"step": step}))
    os.rename(path + ".tmp", path)
def archive(path, step):
    with zipfile.ZipFile(path, "w") as z: z.writestr("archive/data.pkl", json.dumps({"step": step}) * 1000)
def load():
    return json.load(open(resume + "/state.json"))["step"] if resume else 0
def forever():
    while True: time.sleep(0.1)
"""


def program(body, ranks=1, checkpoints=None, **more):
    own = {"command": [sys.executable, "-c", PRELUDE + body]}
    if checkpoints is not None:
        own["checkpoints"] = checkpoints
    return {"name": "program", "program": own, "parallel": {"data": ranks}, **more}


def log_lines(service, job):
    return [line["text"] for line in service.json("logs", job)["lines"] if line["stream"] == "stdout"]


def events(service, job, kind):
    return [event["message"] for event in service.json("events", job)["events"] if event["kind"] == kind]


def checkpoints(service, job):
    """{step: row}; a job has each step once here."""
    return {int(row["step"]): row for row in service.json("checkpoints", job).get("checkpoints", [])}


def folder_of(service, job):
    return pathlib.Path(next(iter(checkpoints(service, job).values()))["directory"]).parent


def until_committed(watch, step):
    return watch.until(lambda u: u.get("event", {}).get("kind") == "checkpoint_committed" and
                       u["event"].get("message") == f"step {step}", 60, f"checkpoint of step {step}")


def wait_step(service, job, step):
    wait_until(lambda: int(service.json("get", job).get("step", 0)) >= step, 30, f"step {step}")


CONTINUES = """
start = load()
for step in range(start + 1, start + 6):
    report(step)
    if rank == 0: save(step)
print("from", start, "to", step, flush=True)
if attempt == 1: forever()
"""


@pytest.mark.sanitized
@pytest.mark.parametrize("victim", ["a rank", "the executor"])
def test_an_attempt_after_a_kill_resumes_from_the_newest_checkpoint_and_shows_each_step_once(service, victim):
    job = service.submit(program(CONTINUES, ranks=2))
    with service.watch(job) as watch:
        until_committed(watch, 5)
    wait_until(lambda: len(log_lines(service, job)) == 2, 30, "both ranks' lines")
    if victim == "a rank":
        os.kill(service.worker_pids(job)[1][0], signal.SIGKILL)
    else:
        os.kill(next(pid for pid, line in descendants(service.up.pid).items() if "trainyard-executor " in line),
                signal.SIGKILL)
    ended = service.wait_end(job)
    assert ended["attempt"] == 2
    assert sorted(log_lines(service, job)) == ["from 0 to 5"] * 2 + ["from 5 to 10"] * 2
    assert service.metric(job, "attempt") == {s: 1.0 if s <= 5 else 2.0 for s in range(1, 11)}
    assert {step: row["state"] for step, row in checkpoints(service, job).items()} == \
        {step: "COMMITTED" for step in (5, 8, 9, 10)}, "three, and the one that the attempt began with"


def test_the_ranks_of_two_hosts_resume_from_the_same_checkpoint(two_hosts):
    job = two_hosts.submit(program(CONTINUES + "print(resume, flush=True)", ranks=2))
    with two_hosts.watch(job) as watch:
        until_committed(watch, 5)
    os.kill(two_hosts.worker_pids(job)[0][0], signal.SIGKILL)
    assert two_hosts.wait_end(job)["attempt"] == 2
    paths = [line for line in log_lines(two_hosts, job) if line.startswith("/")]
    assert len(paths) == 2 and paths[0] == paths[1] and paths[0].endswith("attempt-1/step-5")


SEED = int(os.environ.get("TRAINYARD_SEED", random.SystemRandom().randrange(1 << 31)))


def test_after_kills_at_random_steps_each_step_is_shown_once_and_no_attempt_begins_anew(service):
    """Kills a rank, the executor or the controller."""
    print(f"TRAINYARD_SEED={SEED}")
    draw = random.Random(SEED)
    job = service.submit(program("""
start = step = load()
print("from", start, flush=True)
while step < 120:
    step += 1; report(step); time.sleep(0.05)
    if rank == 0 and step % 4 == 0: save(step)
""", ranks=2, retry={"max_restarts": 50}))
    wait_until(lambda: checkpoints(service, job), 30, "the first checkpoint")
    for kill in range(6):
        reached = int(service.json("get", job).get("step", 0))
        if reached > 100:
            break
        wait_step(service, job, min(100, reached + draw.randrange(1, 12)))
        victim = "rank" if kill == 0 else draw.choice(["rank", "rank", "trainyard-executor", "trainyard-controller"])
        with contextlib.suppress(ProcessLookupError, AssertionError, KeyError):
            os.kill(service.worker_pids(job)[draw.randrange(2)][0] if victim == "rank" else service.pid_of(victim),
                    signal.SIGKILL)
    ended = service.wait_end(job)
    print(f"{ended['attempt']} attempts, {[a.get('reason') for a in ended['attempts']]}")
    assert ended["attempt"] > 1
    shown = service.metric(job, "attempt")
    assert sorted(shown) == list(range(1, 121))
    assert [shown[step] for step in sorted(shown)] == sorted(shown.values()), "a later attempt has the later steps"
    assert log_lines(service, job).count("from 0") == 2, "of the two ranks of the first attempt"


def test_a_metric_that_follows_its_checkpoint_is_stored_before_it(service):
    """As Lightning reports it. The rank is killed when the checkpoint is known, and the event file is gone with it."""
    tests = str(pathlib.Path(__file__).parents[1])
    job = service.submit(program(f"sys.path.insert(0, {tests!r})\n" + """
from event_files import scalar, version
start = load()
with open(os.environ["TRAINYARD_TENSORBOARD"] + "/tfevents", "wb", 0) as f:
    f.write(version() + scalar("loss", start + 1, 1) + scalar("loss", start + 2, 1))
    if attempt == 1:
        time.sleep(1.5)    # the file is known, and is looked at each second
        save(3)
        while not os.path.exists(folder + "/step-3.json"): time.sleep(0.001)    # the manifest
        time.sleep(0.01)
        f.write(scalar("loss", 3, 1)); forever()
"""))
    with service.watch(job) as watch:
        until_committed(watch, 3)
        os.kill(service.worker_pids(job)[0][0], signal.SIGKILL)
    assert service.wait_end(job)["attempt"] == 2
    assert service.metric(job, "loss") == {step: 1.0 for step in range(1, 6)}


def test_a_checkpoint_of_the_last_moment_is_stored_before_the_job_ends(service):
    job = service.submit(program("report(1); save(1)"))
    service.wait_end(job)
    row = checkpoints(service, job)[1]
    assert row["state"] == "COMMITTED" and int(row["bytes"]) == len('{"step": 1}')
    assert pathlib.Path(row["directory"], "state.json").read_text() == '{"step": 1}'
    assert "COMMITTED" in service.cli("checkpoint", "verify", row["name"]).stdout


def test_a_checkpoint_that_is_not_complete_is_never_used(service):
    job = service.submit(program("""
if not resume:
    save(1)
    os.mkdir(folder + "/step-2.tmp"); write(folder + "/step-2.tmp/state.json", '{"st')   # killed before the rename
    os.mkdir(folder + "/step-3"); write(folder + "/step-3/state.json", '{"st')           # not renamed at all
    report(3)
    forever()
print("from", load(), flush=True)
"""))
    with service.watch(job) as watch:
        until_committed(watch, 1)
    refused = wait_until(lambda: events(service, job, "checkpoint_refused"), 30, "the refusal")
    assert "step-3" in refused[0] and "rename it" in refused[0]
    os.kill(service.worker_pids(job)[0][0], signal.SIGKILL)
    assert service.wait_end(job)["attempt"] == 2
    assert log_lines(service, job) == ["from 1"] and sorted(checkpoints(service, job)) == [1]


def test_a_flipped_byte_makes_a_checkpoint_corrupt_and_the_older_one_is_used(service):
    job = service.submit(program("""
if not resume:
    for step in (1, 2): report(step); save(step)
    forever()
print("from", load(), flush=True)
"""))
    with service.watch(job) as watch:
        until_committed(watch, 2)
        service.cli("pause", job)
        watch.until_state("PAUSED")
    path = pathlib.Path(checkpoints(service, job)[2]["directory"], "state.json")
    path.write_text(path.read_text().replace("2", "3"))
    service.cli("resume", job)
    ended = service.wait_end(job)
    assert ended["attempt"] == 3 and int(ended.get("restarts", 0)) == 0
    assert "the bytes of 'step-2/state.json' do not match" in ended["attempts"][1]["reason"]
    assert log_lines(service, job) == ["from 1"]
    assert checkpoints(service, job)[2]["state"] == "CORRUPT"
    path.write_text(path.read_text().replace("3", "2"))
    assert "COMMITTED" in service.cli("checkpoint", "verify", checkpoints(service, job)[2]["name"]).stdout


@pytest.fixture
def impatient():
    """A job waits a second for files that are gone."""
    yield from make_service(executors=1, slots=1, options=["--checkpoint-wait", "1"])


def test_a_checkpoint_whose_files_are_gone_is_missing_and_the_older_one_is_used(impatient):
    job = impatient.submit(program("""
if not resume:
    for step in (1, 2): report(step); save(step)
    forever()
print("from", load(), flush=True)
"""))
    with impatient.watch(job) as watch:
        until_committed(watch, 2)
        impatient.cli("pause", job)
        watch.until_state("PAUSED")
    pathlib.Path(checkpoints(impatient, job)[2]["directory"], "state.json").unlink()
    impatient.cli("resume", job)
    impatient.wait_end(job)
    assert log_lines(impatient, job) == ["from 1"] and checkpoints(impatient, job)[2]["state"] == "MISSING"


def test_a_program_runs_without_a_folder_for_checkpoints_unless_it_asks_for_one(service):
    (service.directory / "checkpoints").mkdir(exist_ok=True)
    for number in (1, 2):
        (service.directory / "checkpoints" / str(number)).write_text("in the way")
    job = service.submit(program("print(repr(folder), flush=True)"))
    service.wait_end(job)
    assert log_lines(service, job) == ["''"] and len(events(service, job, "no_checkpoints")) == 1
    asks = service.submit(program("", checkpoints={"format": "rename"}, retry={"max_restarts": 0}), "--skip-check")
    ended = service.wait_end(asks, "FAILED")
    assert f"checkpoints/{asks}" in ended["attempts"][0]["reason"]


def test_the_newest_checkpoints_are_kept_and_all_files_are_deleted_with_the_job(service):
    job = service.submit(program("""
write(folder + "/notes.txt", "the program's own")
for step in range(1, 8): save(step)
""", checkpoint={"keep_last": 2}))
    service.wait_end(job)
    folder = folder_of(service, job)
    wait_until(lambda: sorted(entry.name for entry in folder.iterdir()) ==
               ["notes.txt", "step-6", "step-6.json", "step-7", "step-7.json"], 30, "the deletion of older checkpoints")
    service.cli("delete", job)
    wait_until(lambda: not folder.parent.exists(), 30, "the deletion of the job's folder")


def test_a_paused_program_saves_on_sigterm_and_goes_on_from_there(service):
    job = service.submit(program("""
step = load()
print("from", step, flush=True)
def stop(*_):
    save(step); sys.exit(0)
signal.signal(signal.SIGTERM, stop)
while step < (5 if not resume else 8): step += 1; report(step)
if not resume: forever()
"""))
    with service.watch(job) as watch:
        wait_step(service, job, 5)
        service.cli("pause", job)
        assert watch.until_state("PAUSED")["message"] == "paused by its user after step 5"
        service.cli("resume", job)
    service.wait_end(job)
    assert log_lines(service, job) == ["from 0", "from 5"]
    assert service.metric(job, "attempt") == {s: 1.0 if s <= 5 else 2.0 for s in range(1, 9)}


def test_the_reason_of_a_pause_names_the_checkpoint_that_a_program_goes_on_from(service):
    job = service.submit(program("save(4); report(7); forever()"))
    with service.watch(job) as watch:
        until_committed(watch, 4)
        wait_step(service, job, 7)
        service.cli("pause", job)
        assert watch.until_state("PAUSED")["message"] == \
            "paused by its user at step 7; it will go on from its checkpoint of step 4"
    service.cli("cancel", job)
    without = service.submit(program("report(7); forever()"))
    with service.watch(without) as watch:
        wait_step(service, without, 7)
        service.cli("pause", without)
        assert "stored no checkpoint" in watch.until_state("PAUSED")["message"]
    service.cli("cancel", without)


# Files as each framework writes them, in its order, with what a killed writer leaves behind. {}: attempt 1 only.
FORMATS = {
    "marker": ({"marker": "DONE"}, "step-7", """
for step in (7, 8):
    os.mkdir(folder + "/step-%d" % step); write(folder + "/step-%d/state.json" % step, json.dumps({"step": step}))
write(folder + "/step-7/DONE", "")
"""),
    "hugging_face": ({"format": "hugging_face"}, "step-7/checkpoint-7", """
def trainer(step, whole):
    path = folder + "/checkpoint-%d" % step
    os.makedirs(path)
    write(path + "/model.safetensors", "x" * 100000); write(path + "/state.json", json.dumps({"step": step}))
    archive(path + "/optimizer.pt", step); archive(path + "/rng_state.pth", step)
    text = json.dumps({"global_step": step, "log_history": [{"loss": float("nan")}]}, indent=2, sort_keys=True) + "\\n"
    write(path + "/trainer_state.json", text if whole else text[:-3])
trainer(7, True); trainer(8, False)
"""),
    "dcp": ({"format": "dcp"}, "step-7", """
for step in (7, 8):
    os.mkdir(folder + "/step-%d" % step); write(folder + "/step-%d/__0_0.distcp" % step, "x" * 100000)
    write(folder + "/step-%d/state.json" % step, json.dumps({"step": step}))
    write(folder + "/step-%d/.metadata.tmp" % step, "m")
os.rename(folder + "/step-7/.metadata.tmp", folder + "/step-7/.metadata")
"""),
    "orbax": ({"format": "orbax"}, "step-7/7", """
for step in (7, 8):
    path = folder + "/%d.orbax-checkpoint-tmp-16" % step
    os.makedirs(path + "/default"); write(path + "/_CHECKPOINT_METADATA", "{}"); write(path + "/default/d", "x" * 100000)
    write(path + "/state.json", json.dumps({"step": step}))
os.rename(folder + "/7.orbax-checkpoint-tmp-16", folder + "/7")
"""),
    "lightning": ({"format": "lightning"}, "step-7/epoch=0-step=7.ckpt", """
archive(folder + "/epoch=0-step=7.ckpt", 7); archive(folder + "/x", 8)
os.truncate(folder + "/x", os.path.getsize(folder + "/x") - 10); os.rename(folder + "/x", folder + "/epoch=0-step=8.ckpt")
os.symlink("epoch=0-step=7.ckpt", folder + "/last.ckpt")
"""),
    "torch_save": ({"format": "torch_save"}, "step-7/model-step00007.pt", """
archive(folder + "/model-step00007.pt", 7); archive(folder + "/x", 8)
os.truncate(folder + "/x", os.path.getsize(folder + "/x") // 2); os.rename(folder + "/x", folder + "/model-step00008.pt")
"""),
    "rename": ({}, "step-7/step-007", """
save(7, "step-%03d")
os.mkdir(folder + "/step-008.tmp")
"""),
}


@pytest.mark.parametrize("name", FORMATS)
def test_each_format_finds_what_is_complete_and_resumes_from_it(service, name):
    given, loaded, body = FORMATS[name]
    job = service.submit(program("if not resume:\n" + "".join(f"    {line}\n" for line in body.splitlines()) + """
    report(9)
    forever()
step = json.loads(zipfile.ZipFile(resume).read("archive/data.pkl")[:11])["step"] if os.path.isfile(resume) else load()
print(step, resume, flush=True)
""", checkpoints=given))
    with service.watch(job) as watch:
        until_committed(watch, 7)
        wait_step(service, job, 9)
    os.kill(service.worker_pids(job)[0][0], signal.SIGKILL)
    assert service.wait_end(job)["attempt"] == 2
    assert log_lines(service, job) == [f"7 {folder_of(service, job)}/{loaded}"]
    assert {step: row["state"] for step, row in checkpoints(service, job).items()} == {7: "COMMITTED"}
    assert not events(service, job, "checkpoint_refused")


def test_a_trainer_that_removes_its_own_checkpoint_does_not_remove_the_stored_one(service):
    job = service.submit(program("""
import shutil
if not resume:
    archive(folder + "/epoch=0-step=3.ckpt", 3)
    while not os.path.exists(folder + "/step-3.json"): time.sleep(0.01)
    os.unlink(folder + "/epoch=0-step=3.ckpt")
    report(3)
    forever()
print(zipfile.ZipFile(resume).testzip(), flush=True)
""", checkpoints={"format": "lightning"}))
    wait_step(service, job, 3)
    wait_until(lambda: events(service, job, "checkpoint_committed"), 60, "the stored checkpoint")
    os.kill(service.worker_pids(job)[0][0], signal.SIGKILL)
    service.wait_end(job)
    assert log_lines(service, job) == ["None"]
    name = checkpoints(service, job)[3]["name"]
    service.cli("checkpoint", "delete", name)
    wait_until(lambda: not (service.directory / "checkpoints" / job / "attempt-1" / "step-3").exists(), 30, "deletion")


REFUSED = {
    "symlink": ('os.symlink("/etc/passwd", path + "/link")', "is a symbolic link"),
    "fifo": ('os.mkfifo(path + "/fifo")', "is neither a file nor a folder"),
    "unreadable": ('write(path + "/secret", "x"); os.chmod(path + "/secret", 0)', "Permission denied"),
    "many": ('[write(path + "/%d" % i, "") for i in range(60000)]', "more than 50000 files and folders"),
    "empty": ("", "has no file in it"),
    "deep": ('os.makedirs(path + "/a" * 60)', "too many folders in each other"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_checkpoint_that_cannot_be_stored_is_refused_by_an_event_and_the_program_goes_on(service, what):
    if what == "unreadable" and os.geteuid() == 0:
        pytest.skip("root reads every file")
    make, sentence = REFUSED[what]
    job = service.submit(program(f"""
path = folder + "/step-1.tmp"
os.mkdir(path)
{make}
os.rename(path, folder + "/step-1")
save(2)
"""))
    service.wait_end(job)
    assert sentence in " ".join(events(service, job, "checkpoint_refused"))
    assert sorted(checkpoints(service, job)) == [2]


def test_a_file_that_never_stops_changing_is_refused(service):
    job = service.submit(program("""
os.mkdir(folder + "/step-1.tmp")
f = open(folder + "/step-1.tmp/growing", "w")
f.write("x" * (64 << 20)); f.flush()
os.rename(folder + "/step-1.tmp", folder + "/step-1")
while True:
    f.seek(0); f.write("x" * 4096); f.flush()
"""))
    with service.watch(job) as watch:
        assert "changed while it was read" in watch.until_event("checkpoint_refused", 60)["message"]
    assert not checkpoints(service, job)
    service.cli("cancel", job)
    service.wait_end(job, "CANCELLED")


def test_a_fork_of_a_program_begins_with_the_checkpoint_of_its_origin(service):
    body = 'step = load(); print("from", step, resume, flush=True); report(step + 1); save(step + 1)'
    first = service.submit(program(body))
    service.wait_end(first)
    path = service.directory / "fork.json"
    path.write_text(json.dumps(program(body)))
    fork = service.cli("submit", "--fork", first, path).stdout.strip()
    service.wait_end(fork)
    assert log_lines(service, fork) == [f"from 1 {checkpoints(service, first)[1]['directory']}"]
    assert sorted(checkpoints(service, fork)) == [2]


@pytest.mark.parametrize("given, sentence", [
    ({"format": "pickle"}, "program.checkpoints.format"),
    ({"marker": "a/b"}, "program.checkpoints.marker: 'a/b' is not the name of a file"),
    ({"marker": "DONE", "format": "dcp"}, "program.checkpoints.format: cannot be given with marker"),
])
def test_a_wrong_format_of_checkpoints_is_refused(shared_service, given, sentence):
    path = shared_service.directory / "refused.json"
    path.write_text(json.dumps(program("", checkpoints=given)))
    assert sentence in shared_service.cli("validate", path, status=2).stderr


# Programs as the frameworks' pages show them. Each trains 20 steps and waits to be killed, and then 10 more.
LIBRARIES = {
    "hugging_face": (["transformers", "accelerate"], {"format": "hugging_face"}, """
import torch, transformers
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__(); self.layer = torch.nn.Linear(2, 1)
    def forward(self, x, labels=None):
        y = self.layer(x).squeeze(-1)
        return {"loss": ((y - labels) ** 2).mean(), "logits": y}
class Callback(transformers.TrainerCallback):
    def on_train_begin(self, args, state, control, **more): print("begins at", state.global_step, flush=True)
    def on_step_end(self, args, state, control, **more):
        if not resume and state.global_step == 21: forever()
data = [{"x": torch.tensor([i / 50, 1.0]), "labels": torch.tensor(i / 25)} for i in range(64)]
args = transformers.TrainingArguments(output_dir=folder, max_steps=30, save_strategy="steps", save_steps=10,
                                      save_total_limit=1, report_to=[], use_cpu=True, disable_tqdm=True)
trainer = transformers.Trainer(model=Net(), args=args, train_dataset=data, callbacks=[Callback()])
trainer.train(resume_from_checkpoint=resume or None)
"""),
    "lightning": (["lightning"], {"format": "lightning"}, """
import lightning, torch
class Net(lightning.LightningModule):
    def __init__(self):
        super().__init__(); self.layer = torch.nn.Linear(2, 1)
    def training_step(self, batch, index):
        return self.layer(batch).square().mean()
    def configure_optimizers(self): return torch.optim.SGD(self.parameters(), lr=0.1)
class Callback(lightning.Callback):
    def on_train_start(self, trainer, module): print("begins at", trainer.global_step, flush=True)
    def on_train_batch_start(self, trainer, *more):
        if not resume and trainer.global_step == 21: forever()
saver = lightning.pytorch.callbacks.ModelCheckpoint(dirpath=folder, every_n_train_steps=10, save_top_k=1,
                                                    monitor="step", mode="max")
trainer = lightning.Trainer(max_steps=30, accelerator="cpu", logger=False, enable_progress_bar=False,
                            callbacks=[saver, Callback()])
trainer.fit(Net(), torch.utils.data.DataLoader(torch.ones(400, 2), batch_size=4), ckpt_path=resume or None,
            weights_only=False)
"""),
    "dcp": (["torch"], {"format": "dcp"}, """
import torch, torch.distributed.checkpoint as dcp
state = {"weight": torch.zeros(10), "step": torch.zeros(1)}
if resume: dcp.load(state, checkpoint_id=resume)
start = int(state["step"])
print("begins at", start, flush=True)
for step in range(start + 1, 31):
    state["step"][0] = step
    if step % 10 == 0: dcp.save(state, checkpoint_id=folder + "/step-%d" % step)
    if not resume and step == 21: forever()
"""),
    "torch_save": (["torch"], {"format": "torch_save"}, """
import torch
start = torch.load(resume)["step"] if resume else 0
print("begins at", start, flush=True)
for step in range(start + 1, 31):
    if step % 10 == 0: torch.save({"step": step, "weight": torch.ones(100000)}, folder + "/model-step%d.pt" % step)
    if not resume and step == 21: forever()
"""),
    "orbax": (["orbax.checkpoint", "jax"], {"format": "orbax"}, """
import jax.numpy as jnp, orbax.checkpoint as ocp
start = 0
if resume:
    from_path = ocp.CheckpointManager(os.path.dirname(resume))
    start = int(from_path.restore(int(os.path.basename(resume)), args=ocp.args.StandardRestore())["step"])
print("begins at", start, flush=True)
manager = ocp.CheckpointManager(folder, options=ocp.CheckpointManagerOptions(max_to_keep=1))
for step in range(start + 1, 31):
    if step % 10 == 0: manager.save(step, args=ocp.args.StandardSave({"step": jnp.array(step), "weight": jnp.ones(1000)}))
    if not resume and step == 21: manager.wait_until_finished(); forever()
manager.wait_until_finished()
"""),
}


@pytest.mark.parametrize("name", LIBRARIES)
def test_a_real_library_resumes_from_its_checkpoint_after_a_kill(service, name):
    modules, given, body = LIBRARIES[name]
    for module in modules:
        pytest.importorskip(module, reason=f"{sys.executable} has no {module}")
    job = service.submit(program("import warnings; warnings.simplefilter('ignore')\n" + body, checkpoints=given))
    wait_until(lambda: 20 in checkpoints(service, job), 60, "the checkpoint of step 20")
    os.kill(service.worker_pids(job)[0][0], signal.SIGKILL)
    assert service.wait_end(job)["attempt"] == 2
    assert [line for line in log_lines(service, job) if line.startswith("begins")] == ["begins at 0", "begins at 20"]
    assert {step: row["state"] for step, row in checkpoints(service, job).items()} == \
        {step: "COMMITTED" for step in (10, 20, 30)}
