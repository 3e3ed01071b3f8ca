"""deploy/slurm/executors.sh in a real Slurm of two nodes, with a controller that requires TLS and tokens."""

import os
import pathlib
import re
import signal
import subprocess

import pytest

import slurm_cluster
from service_fixture import BIN, PATIENCE, ROOT, Database, Service, wait_until

pytestmark = [pytest.mark.waits,
              pytest.mark.skipif(slurm_cluster.missing() is not None, reason=str(slurm_cluster.missing()))]
SCRIPT = ROOT / "deploy" / "slurm" / "executors.sh"


class Site:
    """A Slurm, and a service whose controller other machines could reach."""

    def __init__(self, directory, text_file):
        self.directory = directory
        (directory / "service").mkdir()
        self.up = Service(directory / "service", executors=0).start()
        self.slurm = slurm_cluster.SlurmCluster(directory / "slurm").start()
        self.certificates()
        (directory / "checkpoints").mkdir()
        self.controller = subprocess.Popen(
            [BIN / "trainyard-controller", "--database", Database(self.up, "slurm").conninfo, "--listen", "localhost:0",
             "--listen", f"unix:{directory}/c.sock", "--checkpoints", directory / "checkpoints",
             "--tls-ca", "ca.pem", "--tls-cert", "controller.pem", "--tls-key", "controller.key"],
            cwd=directory, env=self.up.environment(), stdout=subprocess.PIPE, text=True, stderr=open(directory / "c.log", "w"))
        address = self.controller.stdout.readline().split()[1]
        self.up.address = f"unix:{directory}/c.sock"
        token = directory / "slurm.token"
        token.write_text(self.up.cli("token", "create", "slurm", "--role", "EXECUTOR", "--shared").stdout)
        token.chmod(0o600)
        self.environment = {
            "TRAINYARD_CONTROLLER": f"localhost:{address.rpartition(':')[2]}", "TRAINYARD_TOKEN_FILE": str(token),
            "TRAINYARD_CA": f"{directory}/ca.pem", "TRAINYARD_CERT": f"{directory}/slurm.pem",
            "TRAINYARD_KEY": f"{directory}/slurm.key", "TRAINYARD_CHECKPOINT_ROOT": f"{directory}/checkpoints",
            "TRAINYARD_DIRECTORY": f"{directory}/nodes", "TRAINYARD_EXECUTOR": str(BIN / "trainyard-executor"),
            "TRAINYARD_OPTIONS": f"--slots 1 --data-root {text_file.parent}"}

    def certificates(self):
        new = "openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes"
        script = f"{new} -x509 -days 2 -subj /CN=ca -keyout ca.key -out ca.pem\n" + "".join(
            f"{new} -subj /CN={name} -addext subjectAltName=DNS:{host} -keyout {name}.key -out {name}.csr\n"
            f"openssl x509 -req -in {name}.csr -CA ca.pem -CAkey ca.key -days 2 -copy_extensions copy -out {name}.pem\n"
            for name, host in (("controller", "localhost"), ("slurm", "slurm")))
        subprocess.run(["bash", "-euc", script], cwd=self.directory, check=True, capture_output=True)

    def submit(self, *options, **environment):
        return self.slurm.run("sbatch", "--parsable", "-N", "2", "-c", "1", "--mem", "1500", "-o", "%j.log", *options, SCRIPT,
                              **{**self.environment, **environment})

    def log(self, job):
        path = self.slurm.directory / f"{job}.log"
        return path.read_text() if path.exists() else ""

    def executors(self, state="ATTACHED"):
        return [x for x in self.up.json("executors").get("executors", []) if x["state"] == state]

    def wait_attached(self, job):
        wait_until(lambda: len(self.executors()) == 2 or self.slurm.state(job) == "FAILED", 60, "two executors attach")
        assert len(self.executors()) == 2, self.log(job)

    def wait_ended(self, job, state):
        wait_until(lambda: self.slurm.state(job) not in ("RUNNING", "COMPLETING", "PENDING"), 120, "the allocation ends")
        assert self.slurm.state(job) == state, self.log(job)
        # slurmstepd is no child of slurmd: processes are searched by their command lines.
        left = subprocess.run(["pgrep", "-f", f"--directory {self.directory}/nodes/"], capture_output=True, text=True).stdout
        assert not left, left

    def stop(self):
        self.slurm.run("scancel", "--user", slurm_cluster.getpass.getuser(), status=None)
        wait_until(lambda: not self.slurm.run("squeue", "-h"), 60, "no allocation is left")
        self.slurm.stop()
        self.controller.send_signal(signal.SIGTERM)
        assert self.controller.wait(60 * PATIENCE) == 0
        self.up.stop()


@pytest.fixture(scope="module")
def site(tmp_path_factory, text_file):
    site = Site(pathlib.Path(tmp_path_factory.mktemp("slurm")), text_file)
    yield site
    site.stop()


def endless(tiny, **more):
    return tiny(steps=1_000_000, every=1_000_000, data=2, train__learning_rate_schedule={"constant": {}}, **more)


def test_a_job_leaves_before_the_time_limit_and_continues_in_the_next_allocation_with_the_same_weights(site, tiny):
    first = site.submit("--time", "1", "--signal", "B:USR1@20")
    site.wait_attached(first)
    rows = site.executors()
    assert all(int(x["cores"]) == 1 and int(x["slots"]) == 1 for x in rows), rows
    job = site.up.submit(endless(tiny))
    with site.up.watch(job) as watch:
        watch.until_step(1)
        watch.until_state("PREEMPTING")  # Slurm's signal
        watch.until_state("QUEUED")
    site.wait_ended(first, "COMPLETED")
    assert "executors.sh: draining" in site.log(first)
    middle = int(site.up.json("checkpoints", job)["checkpoints"][0]["step"])

    second = site.submit()
    with site.up.watch(job) as watch:
        watch.until(lambda u: u.get("event", {}).get("state") == "RUNNING" and u["event"]["attempt"] == 2, 60, "it runs again")
        watch.until_step(middle + 5)
        site.up.cli("pause", job, "--wait")
    got = site.up.json("get", job)
    assert got["restarts"] == 0 and int(got["attempts"][1]["from_step"]) == middle
    last = max(site.up.json("checkpoints", job)["checkpoints"], key=lambda c: int(c["step"]))
    alone = site.up.submit(endless(tiny), "--set", f"train.steps={last['step']}")
    assert site.up.wait_end(alone)["weights_sha256"] == last["weights_sha256"]
    site.up.cli("cancel", job)
    assert {x["name"] for x in site.executors()} == {x["name"] for x in rows}, "a node keeps its executor's id"

    site.slurm.run("scancel", "--signal=USR1", "--batch", second)
    site.wait_ended(second, "COMPLETED")


def test_a_killed_executor_starts_again_and_a_cancelled_allocation_leaves_no_process(site):
    allocation = site.submit()
    site.wait_attached(allocation)
    before = {x["name"]: x["attach_time"] for x in site.executors()}
    pid = int((site.directory / "nodes" / "n2" / "slurm.pid").read_text())
    assert b"--memory-mib\0988\0" in pathlib.Path(f"/proc/{pid}/cmdline").read_bytes(), "1500 less 512"
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: len(site.executors()) == 2 and {x["name"]: x["attach_time"] for x in site.executors()} != before, 60,
               "the executor attaches again")
    assert "executor of n2 ended with status 137" in site.log(allocation)
    site.slurm.run("scancel", allocation)
    site.wait_ended(allocation, "CANCELLED")


def test_a_requeued_allocation_gets_the_same_executors(site):
    allocation = site.submit("--requeue", TRAINYARD_REQUEUE="1")
    site.wait_attached(allocation)
    names = {x["name"] for x in site.executors()}
    site.slurm.run("scancel", "--signal=USR1", "--batch", allocation)
    wait_until(lambda: site.slurm.job(allocation)["Restarts"] == "1", 60, "Slurm requeues the allocation")
    wait_until(lambda: site.slurm.state(allocation) == "RUNNING", 60, "Slurm starts it again")
    site.wait_attached(allocation)
    assert {x["name"] for x in site.executors()} == names
    site.slurm.run("scancel", allocation)
    site.wait_ended(allocation, "CANCELLED")


@pytest.mark.parametrize("lacking, sentence", [
    ("TRAINYARD_CONTROLLER", "is the address of the controller"),
    ("TRAINYARD_DIRECTORY", "is a directory for the state of the executors"),
])
def test_a_missing_variable_ends_the_allocation_with_one_sentence(site, lacking, sentence):
    allocation = site.submit(**{lacking: ""})
    site.wait_ended(allocation, "FAILED")
    assert sentence in site.log(allocation)


def test_a_wrong_option_ends_the_allocation_at_once(site):
    allocation = site.submit(TRAINYARD_OPTIONS="--no-such-option")
    site.wait_ended(allocation, "FAILED")
    assert len(re.findall("no-such-option", site.log(allocation))) == 2
