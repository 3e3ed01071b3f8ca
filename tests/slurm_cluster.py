"""A Slurm of its own on this machine: munged, slurmctld, and two slurmd as nodes n1 and n2 of two cores each."""

import getpass
import os
import pathlib
import shutil
import signal
import socket
import subprocess

from service_fixture import PATIENCE, wait_until

NODES = ("n1", "n2")
CONF = """
ClusterName=trainyard-test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={directory}/munge.socket,cred_expire=5
StateSaveLocation={directory}/state
SlurmdSpoolDir={directory}/spool-%n
SlurmctldPidFile={directory}/slurmctld.pid
SlurmdPidFile={directory}/slurmd-%n.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
SlurmdParameters=config_overrides
SchedulerParameters=bf_interval=1,sched_interval=1
KillWait=30
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=2 RealMemory=4000
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=2 RealMemory=4000
PartitionName=all Nodes=ALL Default=YES State=UP
"""


def missing():
    """What this machine lacks for a Slurm; None if it has all."""
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    lacking = [name for name in ("munged", "slurmctld", "slurmd", "sbatch") if not shutil.which(name)]
    return f"no {', '.join(lacking)}: install slurm-wlm and munge" if lacking else None


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


class SlurmCluster:
    def __init__(self, directory):
        self.directory = pathlib.Path(directory)
        self.processes = []
        self.environment = {**os.environ, "SLURM_CONF": str(self.directory / "slurm.conf")}

    def daemon(self, *command):
        log = open(self.directory / f"{command[0]}-{len(self.processes)}.log", "wb")
        self.processes.append(subprocess.Popen(command, stdout=log, stderr=log, env=self.environment))

    def run(self, *command, status=0, **environment):
        done = subprocess.run([str(word) for word in command], env={**self.environment, **environment}, text=True,
                              capture_output=True, timeout=60 * PATIENCE, cwd=self.directory)
        assert status is None or done.returncode == status, f"{command}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout.strip()

    def start(self):
        (self.directory / "state").mkdir(parents=True)
        key, munge = self.directory / "munge.key", self.directory / "munge.socket"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o600)
        (self.directory / "slurm.conf").write_text(CONF.format(
            host=socket.gethostname().split(".")[0], user=getpass.getuser(), directory=self.directory, ports=free_ports(3)))
        self.daemon("munged", "--foreground", "--force", f"--socket={munge}", f"--key-file={key}",
                    *(f"--{what}={self.directory}/munge.{what}" for what in ("pid-file", "log-file", "seed-file")))
        wait_until(munge.exists, 30, "munged listens")
        self.daemon("slurmctld", "-D", "-i")
        for node in NODES:
            self.daemon("slurmd", "-D", "-N", node)
        wait_until(lambda: self.run("sinfo", "-h", "-t", "idle", "-o", "%D", status=None) == "2", 60,
                   f"both nodes are idle; logs are in {self.directory}")
        return self

    def state(self, job):
        return self.job(job)["JobState"]

    def job(self, job):
        """The fields that Slurm prints about a job."""
        return dict(word.split("=", 1) for word in self.run("scontrol", "show", "job", "-o", job).split() if "=" in word)

    def stop(self):
        for process in reversed(self.processes):
            process.send_signal(signal.SIGTERM)
        for process in self.processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
