"""The Debian packages in a bare Debian with a systemd of its own: installed, started, used, upgraded, removed, purged.

The tests are one story, and each begins where the one before it ended. `./dev deb test` builds the packages of this checkout
(TRAINYARD_PACKAGES) and those of a later version, which has one migration more (TRAINYARD_LATER_PACKAGES), and runs this file.
"""

import json
import os
import pathlib
import subprocess

import pytest

import machine as machines

OLD, LATER = (os.environ.get(name) for name in ("TRAINYARD_PACKAGES", "TRAINYARD_LATER_PACKAGES"))
WHY = "run by ./dev deb test" if not OLD or not LATER else machines.missing()
pytestmark = pytest.mark.skipif(WHY is not None, reason=str(WHY))

NAMES = ("trainyard", "trainyard-controller", "trainyard-executor")
UNITS = NAMES[1:]
CUDA = "trainyard-cuda"  # built where nvcc is
USERS = (*UNITS, "trainyard-worker", "trainyard-environment")
SOCKET = "TRAINYARD_CONTROLLER=unix:/run/trainyard/controller.sock"
CHECKPOINTS = "/var/lib/trainyard/checkpoints"
INSTALL = "apt-get install -y -q --no-install-recommends -o Dpkg::Options::=--force-unsafe-io"
MODEL = """
name: {name}
model: {{gpt: {{layers: 2, heads: 2, width: 32, context: 32}}}}
data: {{text: {{files: ["file:///data/text.txt"], validation_fraction: 0.1}}}}
train: {{steps: {steps}, global_batch: 8, micro_batch: 2, lanes: 4, seed: 1, optimizer: {{adamw: {{lr: 0.003}}}}}}
parallel: {{data: 2}}
checkpoint: {{every: 50, keep_last: 2}}
"""
PROGRAM = """
name: program
program: {command: [sh, -c, "id -un; cat /etc/trainyard/executor/token; cat /var/lib/trainyard/executor/* || exit 0"]}
"""


def packages(folder):
    """The packages of one version, without debug symbols."""
    found = {path.name.split("_")[0]: path for path in pathlib.Path(folder).glob("*.deb")}
    return [found[name] for name in (*NAMES, CUDA) if name in found or name != CUDA]


@pytest.fixture(scope="module")
def machine():
    m = machines.Machine(first=packages(OLD), later=packages(LATER))
    (m.root / "data").mkdir()
    (m.root / "data/text.txt").write_text("".join(f"{n} ranks train {n * n} steps of job {n % 7}.\n" for n in range(4000)))
    try:
        m.boot()
        yield m
    finally:
        m.stop()


def admin(m, command):
    """`trainyard` through the controller's socket, which only its user may open."""
    return m.run(f"{SOCKET} trainyard {command}", user="trainyard-controller")


def states(m):
    return {unit: [m.run(f"systemctl {ask} {unit}", check=False).strip() for ask in ("is-active", "is-enabled")] for unit in UNITS}


def process(m, unit):
    return int(m.run(f"systemctl show -p MainPID --value {unit}"))


def attached(m):
    """Whether the controller leads and the executor is attached. Both may have been started a moment ago."""
    done = m.run(f"{SOCKET} setpriv --reuid=trainyard-controller --regid=trainyard-controller --init-groups "
                 "trainyard executors -o json", check=False)
    return '"ATTACHED"' in done


def submit(m, spec):
    (m.root / "data/job.yaml").write_text(spec)
    return admin(m, "submit /data/job.yaml 2>/dev/null").strip()


def checkpoint(m, job, attempt=1):
    """The newest good checkpoint of a job if an attempt has written it, or None."""
    rows = json.loads(admin(m, f"checkpoints {job} -o json"))["checkpoints"]
    return next((row for row in rows if row["state"] == "COMMITTED" and row["attempt"] == attempt), None)


def schema(m):
    return int(m.run("psql -XAtq -d trainyard -c 'SELECT max(version) FROM schema_migration'", user="postgres"))


def test_an_installation_makes_users_and_folders_and_starts_nothing(machine):
    machine.run(f"{INSTALL} /first/*.deb")
    assert states(machine) == {unit: ["inactive", "disabled"] for unit in UNITS}
    assert len({machine.run(f"id -u {user}") for user in USERS}) == 4
    assert machine.run(f"dpkg --verify {' '.join(NAMES)}") == ""
    modes = machine.run(f"stat -c '%a %U %G' /etc/trainyard/controller /etc/trainyard/executor {CHECKPOINTS}")
    assert modes.splitlines() == ["750 root trainyard-controller", "750 root trainyard-executor", "2770 root trainyard"]


def test_the_units_run_as_users_of_their_own(machine):
    machine.until(lambda: "accepting" in machine.run("pg_isready", check=False), 60, "PostgreSQL runs")
    machine.run("createuser trainyard-controller && createdb -O trainyard-controller trainyard", user="postgres")
    machine.run("systemctl enable --now trainyard-controller")
    token = admin(machine, "token create host-1 --role EXECUTOR 2>/dev/null")
    machine.run(f"install -m 0640 -g trainyard-executor /dev/null /etc/trainyard/executor/token; "
                f"echo {token.strip()} >/etc/trainyard/executor/token")
    machine.run("sed -i 's|^TRAINYARD_OPTIONS=\"|&--data-root /data --slots 2 --allow-programs |' /etc/trainyard/executor.conf")
    machine.run("systemctl enable --now trainyard-executor")
    machine.until(lambda: attached(machine), 60, "the executor is attached")
    assert states(machine) == {unit: ["active", "enabled"] for unit in UNITS}
    for unit in UNITS:
        assert machine.run(f"stat -c %U /proc/{process(machine, unit)}").strip() == unit


def test_a_host_without_a_gpu_says_that_it_has_no_driver(machine):
    """The package for GPUs is installed: this and the other tests train on the CPU with it."""
    if not (machine.root / "usr/lib/libtrainyard_cuda.so").exists():
        pytest.skip("no package trainyard-cuda: it was built without nvcc")
    row = json.loads(admin(machine, "executors -o json"))["executors"][0]
    assert row["reason"].startswith("no NVIDIA driver: libnvidia-ml.so.1: cannot open") and not row.get("devices"), row
    assert "no NVIDIA driver: libnvidia-ml.so.1: cannot open" in machine.run("journalctl -u trainyard-executor")

    def check():
        return machine.run("trainyard-worker --check-cuda", user="trainyard-worker", check=False)
    assert "needs a library that cannot be loaded: libcublasLt.so.13" in check()
    library, = (machines.ROOT / "build/cuda/nvidia").glob("*/lib/libcublasLt.so.13")
    os.link(library, machine.root / "usr/local/lib" / library.name)  # as NVIDIA's package does, where the loader looks
    machine.run("ldconfig")
    assert check() == "the driver has no libcuda.so.1 here\n", "the plugin is loaded, and of the same build"


def test_a_model_trains_as_the_user_of_jobs(machine):
    job = submit(machine, MODEL.format(name="first", steps=200))
    admin(machine, f"watch {job}")
    owners = machine.run(f"find {CHECKPOINTS}/{job} -type f -exec stat -c '%U:%G' {{}} + | sort -u")
    assert owners.split() == ["trainyard-worker:trainyard"]


def test_a_program_runs_as_the_user_of_jobs_and_reads_nothing_of_the_executor(machine):
    job = submit(machine, PROGRAM)
    admin(machine, f"watch {job}")
    lines = admin(machine, f"logs {job}")
    assert "trainyard-worker" in lines and lines.count("Permission denied") == 2, lines


def test_a_host_joins_over_tls_with_one_command(machine):
    """The same host joins again, as an executor of its controller by TLS."""
    folder = "/etc/trainyard/controller"
    subprocess.run(["sh", machines.ROOT / "tests" / "rpc" / "certificates.sh", f"{machine.root}{folder}"], check=True, capture_output=True)
    machine.run(f"chown trainyard-controller {folder}/*")
    tls = f"--tls-ca {folder}/good.pem --tls-cert {folder}/server.pem --tls-key {folder}/server.key"
    machine.run(f"sed -i 's|^TRAINYARD_OPTIONS=.*|TRAINYARD_OPTIONS=\"{tls} --ca-key {folder}/good.key --join 127.0.0.1:7702\"|' "
                "/etc/trainyard/controller.conf; systemctl stop trainyard-executor; systemctl restart trainyard-controller")
    admin(machine, "token revoke host-1")
    token = admin(machine, "token create vm --join 2>/dev/null").strip()
    assert "as vm" in machine.run(f"trainyard join {token}")
    machine.until(lambda: attached(machine), 60, "the executor is attached by TLS")
    owners = machine.run("stat -c '%a %U' /etc/trainyard/executor/*").split("\n")
    assert {line for line in owners if line} == {"600 trainyard-executor"}
    job = submit(machine, MODEL.format(name="joined", steps=50))
    admin(machine, f"watch {job}")


def test_an_upgrade_migrates_and_a_running_job_continues_with_the_same_weights(machine):
    before, processes = schema(machine), [process(machine, unit) for unit in UNITS]
    version = machine.run("dpkg-query -W -f '${Version}' trainyard-controller")
    job = submit(machine, MODEL.format(name="interrupted", steps=1000000))
    machine.until(lambda: checkpoint(machine, job), 60, "a first checkpoint")
    machine.run(f"{INSTALL} /later/*.deb")
    assert version != machine.run("dpkg-query -W -f '${Version}' trainyard-controller")
    machine.until(lambda: attached(machine), 60, "the executor is attached again")
    assert schema(machine) == before + 1
    assert all(process(machine, unit) != old for unit, old in zip(UNITS, processes))
    assert "--allow-programs" in machine.run("cat /etc/trainyard/executor.conf"), "settings were overwritten"
    continued = machine.until(lambda: checkpoint(machine, job, attempt=2), 60, "a checkpoint after the upgrade")
    admin(machine, f"cancel {job}")
    undisturbed = submit(machine, MODEL.format(name="undisturbed", steps=continued["step"]))
    admin(machine, f"watch {undisturbed}")
    assert checkpoint(machine, undisturbed)["step"] == continued["step"]
    assert checkpoint(machine, undisturbed)["weights_sha256"] == continued["weights_sha256"]


STOPS = {
    "while systemd starts it": "systemctl start --no-block trainyard-executor",
    "before its own first line": "systemctl start trainyard-executor",
    "when it has begun": "systemctl start trainyard-executor; until journalctl -q -b -u trainyard-executor --since=@$begin | "
                         "grep -q '\"started\"'; do :; done",
    "when it is attached": "systemctl start trainyard-executor; until journalctl -q -b -u trainyard-executor --since=@$begin | "
                           "grep -q '\"attached\"'; do :; done",
    "as the controller stops": "systemctl start trainyard-executor; systemctl stop --no-block trainyard-controller",
    "after the controller": "systemctl start trainyard-executor; systemctl stop trainyard-controller",
    "after the controller was killed": "systemctl start trainyard-executor; systemctl kill -s KILL trainyard-controller",
}


@pytest.mark.parametrize("moment", STOPS)
def test_a_stop_at_any_moment_is_no_failure_of_the_executor(machine, moment):
    for _ in range(int(os.environ.get("TRAINYARD_UNIT_STOPS", "3"))):
        machine.run("systemctl stop trainyard-executor; systemctl start trainyard-controller")
        machine.run(f"begin=$(date +%s.%N); {STOPS[moment]}; systemctl stop trainyard-executor")
        journal = machine.run("journalctl -n 25 --no-pager -u trainyard-executor")
        assert machine.run("systemctl show -p ActiveState -p Result trainyard-executor").split() == ["Result=success", "ActiveState=inactive"], journal
    machine.run("systemctl start trainyard-controller trainyard-executor")
    machine.until(lambda: attached(machine), 60, "the executor is attached again")


def test_removal_stops_the_units_and_keeps_settings_and_state(machine):
    jobs = admin(machine, "list -o name")
    machine.run(f"apt-get remove -y -q {' '.join(NAMES)}")
    journal = machine.run("journalctl -n 25 --no-pager -u trainyard-executor -u trainyard-controller")
    assert [state[0] for state in states(machine).values()] == ["inactive", "inactive"], journal
    assert machine.run("ls /usr/bin | grep trainyard; systemctl list-unit-files --no-legend 'trainyard*' | grep -v masked", check=False) == ""
    machine.run(f"test -s /etc/trainyard/executor/token -a -s /etc/trainyard/executor.conf -a -d {CHECKPOINTS}/1")
    machine.run(f"{INSTALL} /later/*.deb && systemctl start trainyard-controller trainyard-executor")
    machine.until(lambda: attached(machine), 60, "the executor is attached after the second installation")
    assert admin(machine, "list -o name") == jobs


def test_a_purge_removes_settings_and_state_but_no_checkpoints_elsewhere(machine):
    share = f"{CHECKPOINTS}/share"  # of several hosts, mounted below the package's folder
    machine.run(f"mkdir -p /shared/trainyard/checkpoints/7 {share} && mount -t tmpfs none {share} && touch {share}/kept")
    machine.run("apt-get purge -y -q trainyard-executor")
    machine.run(f"test -e {CHECKPOINTS} -a -e /etc/trainyard/controller.conf -a ! -e /etc/trainyard/executor")
    machine.run(f"apt-get purge -y -q {' '.join(NAMES)}")
    machine.run("test ! -e /etc/trainyard -a ! -e /var/cache/trainyard -a ! -e /var/lib/trainyard/executor")
    assert machine.run("find /var/lib/trainyard -type f").split() == [f"{share}/kept"]
    machine.run("test -d /shared/trainyard/checkpoints/7")
    assert schema(machine) > 0, "the database belongs to its administrator"
