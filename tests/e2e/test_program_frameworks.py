"""Programs as each framework's pages show them, on two ranks: their metrics are stored once, their logs are the job's,
and so is their exit status. The programs are in tests/e2e/programs; tests/e2e/programs/README.md says what they know."""

import os
import pathlib
import re
import shutil
import subprocess
import sys

import pytest

from service_fixture import make_service

PROGRAMS = pathlib.Path(__file__).parent / "programs"
MPI_AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_rmaps_base_oversubscribe": "1"}


@pytest.fixture(scope="module")
def host():
    """One executor of two slots."""
    yield from make_service(executors=1, slots=2)


def needs(*modules):
    for module in modules:
        pytest.importorskip(module, reason=f"{sys.executable} has no {module}")


def beside_python(name):
    """A program that a package has installed beside its Python."""
    path = pathlib.Path(sys.executable).parent / name
    if not path.exists():
        pytest.skip(f"there is no {path}")
    return str(path)


def run(service, command, launcher="ranks", state="SUCCEEDED", environment=None, **more):
    """The job, which has ended in that state in its first attempt."""
    job = service.submit({"name": "framework", "parallel": {"data": 2}, "retry": {"max_restarts": 0},
                          "program": {"command": list(map(str, command)), "launcher": launcher,
                                      "environment": {"HOME": str(service.files), **(environment or {})}}, **more})
    assert service.wait_end(job, state)["attempt"] == 1
    return job


def lines(service, job):
    return sorted(line["text"] for line in service.json("logs", job)["lines"] if line["stream"] == "stdout")


def said(service, job, pattern):
    """Lines of ranks that a launcher has started: they share a pipe, and may share a line."""
    return sorted(re.findall(pattern, "\n".join(lines(service, job))))


def assert_metric(service, job, name, steps):
    """Each step once, as the job's: the series of rank 0 has no second one beside it."""
    assert sorted(service.metric(job, name)) == list(steps)


# ---- Debian's packages suffice ----

def test_a_shell_script_trains_on_two_ranks(host):
    job = run(host, [PROGRAMS / "mean.sh"])
    assert host.metric(job, "loss") == {step: 1024 / 2 ** step for step in range(1, 11)}
    assert lines(host, job) == ["rank 0 of 2 has 1", "rank 1 of 2 has 1"]


def compiled(folder):
    program = folder / "regression"
    subprocess.run(["cc", "-O1", "-o", program, PROGRAMS / "regression.c"], check=True)
    return program


def test_a_c_program_trains_on_two_ranks(host, tmp_path):
    job = run(host, [compiled(tmp_path)])
    assert_metric(host, job, "loss", range(1, 21))
    assert lines(host, job) == ["rank 0 has 3.000000", "rank 1 has 3.000000"]


def test_the_exit_status_of_a_program_is_that_of_its_job(host, tmp_path):
    """It learns that it is alone, which it refuses: status 6."""
    path = compiled(tmp_path)
    job = run(host, ["sh", "-c", f"WORLD_SIZE=3 exec {path}"], state="FAILED")
    assert "status 6" in host.json("get", job)["reason"]


def mpi_python():
    """Debian's Python, for which Debian's mpi4py is built, and its launcher."""
    if not shutil.which("mpirun"):
        pytest.skip("there is no mpirun: python3-mpi4py and openmpi-bin are not installed")
    if subprocess.run(["/usr/bin/python3", "-c", "import mpi4py"], stderr=subprocess.DEVNULL).returncode:
        pytest.skip("/usr/bin/python3 has no mpi4py")
    return "/usr/bin/python3"


def test_mpirun_trains_with_mpi4py_as_typed(host):
    python = mpi_python()
    job = run(host, ["mpirun", "-n", "2", python, PROGRAMS / "mpi_regression.py"], "host", environment=MPI_AS_ROOT)
    assert_metric(host, job, "loss", range(1, 21))
    assert said(host, job, r"rank \d of 2 has 3\.000000") == ["rank 0 of 2 has 3.000000", "rank 1 of 2 has 3.000000"]


def test_an_exit_status_below_mpirun_is_that_of_the_job(host):
    python = mpi_python()
    job = run(host, ["mpirun", "-n", "2", python, "-c", "import sys; sys.exit(9)"], "host", "FAILED",
              environment=MPI_AS_ROOT)
    assert "status 9" in host.json("get", job)["reason"]


def test_ranks_of_mpi4py_without_mpirun_are_alone_as_the_docs_say(host):
    """MPI needs a process manager: the ranks that Trainyard starts do not know of each other."""
    python = mpi_python()
    job = run(host, [python, "-c", "from mpi4py import MPI; print(MPI.COMM_WORLD.Get_size())"], environment=MPI_AS_ROOT)
    assert lines(host, job) == ["1", "1"]


# ---- Packages of PyPI ----

TORCH = {
    "ddp": ("train/loss", range(1, 21), r"\[rank (\d)\] parameters (\d+\.\d{6})"),
    "fsdp2": ("loss", range(1, 11), r"rank (\d) of 2: parameters (\d+\.\d{5})"),
}


@pytest.mark.parametrize("launcher", ["ranks", "torchrun"])
@pytest.mark.parametrize("name", TORCH)
def test_data_parallel_programs_of_torch_train_unchanged(host, name, launcher):
    needs("torch", "tensorboard")
    metric, steps, end = TORCH[name]
    program = PROGRAMS / f"{name}.py"
    command = [beside_python("torchrun"), program] if launcher == "torchrun" else [sys.executable, program]
    job = run(host, command, "host" if launcher == "torchrun" else "ranks")
    assert_metric(host, job, metric, steps)
    found = said(host, job, end)
    assert [rank for rank, _ in found] == ["0", "1"] and found[0][1] == found[1][1], found


def test_a_pipeline_of_torch_trains_under_torchrun(host):
    """Its last rank has the loss: of one host, the ranks share what is the job's."""
    needs("torch", "tensorboard")
    job = run(host, [beside_python("torchrun"), PROGRAMS / "pipeline.py"], "host")
    assert_metric(host, job, "loss", range(1, 11))
    assert said(host, job, r"stage \d of 2 is done") == [f"stage {rank} of 2 is done" for rank in (0, 1)]


def test_a_pipeline_of_torch_trains_over_env_and_its_loss_is_that_of_its_last_rank(host):
    needs("torch", "tensorboard")
    job = run(host, [sys.executable, PROGRAMS / "pipeline.py"])
    assert sorted(host.metric(job, "loss", rank=1)) == list(range(1, 11))


LIGHTNING = {"lightning_ddp": ({"train_loss"}, 20, 20), "lightning_gan": ({"g_loss", "d_loss"}, 16, 16)}


@pytest.mark.parametrize("launcher", ["ranks", "host"])
@pytest.mark.parametrize("name", LIGHTNING)
def test_a_trainer_of_lightning_with_ddp_trains_unchanged(host, name, launcher):
    """Started for each rank, and once: then Lightning starts the second rank itself."""
    needs("torch", "lightning", "tensorboard")
    metrics, batches, step = LIGHTNING[name]
    job = run(host, [sys.executable, PROGRAMS / f"{name}.py"], launcher)
    for metric in metrics:
        assert_metric(host, job, metric, range(batches))
    assert said(host, job, r"rank \d of 2 at step \d\d") == [f"rank {rank} of 2 at step {step}" for rank in (0, 1)]


def test_processes_of_jax_train_unchanged(host):
    needs("jax")
    job = run(host, [sys.executable, PROGRAMS / "jax_regression.py"])
    assert_metric(host, job, "loss", range(1, 21))
    assert said(host, job, r"process \d of 2 with 2 devices") == [f"process {rank} of 2 with 2 devices" for rank in (0, 1)]


@pytest.mark.parametrize("launcher", ["ranks", "deepspeed"])
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_zero_of_deepspeed_trains_unchanged(host, stage, launcher):
    """The first run of this user compiles DeepSpeed's collectives of CPUs, for which a compiler is needed."""
    needs("torch", "deepspeed", "tensorboard")
    program, environment = PROGRAMS / "deepspeed_zero.py", {"DS_ACCELERATOR": "cpu"}
    if launcher == "deepspeed":
        command = [beside_python("deepspeed"), "--num_accelerators", 2, program, "--stage", stage]
    else:
        command = [sys.executable, program, "--stage", stage]
    path = f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}"
    job = run(host, command, "host" if launcher == "deepspeed" else "ranks", environment={**environment, "PATH": path})
    assert_metric(host, job, "loss", range(1, 11))
    assert said(host, job, r"rank \d of 2 after step 10") == [f"rank {rank} of 2 after step 10" for rank in (0, 1)]
