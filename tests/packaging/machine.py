"""A bare Debian with a systemd of its own, for tests that install packages: debootstrap makes it, systemd-nspawn boots it.

A machine has its own processes, users and network (the loopback alone), so that nothing of it reaches the host. What needs
the network, which is apt's download of dependencies, happens before it boots."""

import os
import pathlib
import re
import shutil
import subprocess
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
PLACE = ROOT / "build" / "deb"
ENVIRONMENT = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "LANG": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
PROXIES = {name: os.environ[name] for name in ("http_proxy", "https_proxy") if name in os.environ}
INSTALL = ["apt-get", "install", "-y", "-q", "--no-install-recommends"]


def missing():
    """Why this host can make no machine, or None."""
    if os.geteuid() != 0:
        return "debootstrap and systemd-nspawn need root"
    programs = [name for name in ("debootstrap", "systemd-nspawn", "nsenter") if not shutil.which(name)]
    return f"not installed: {', '.join(programs)} (apt-get install debootstrap systemd-container)" if programs else None


def system():
    """(codename, the mirror of this host's apt): the machine has the same Debian."""
    lines = pathlib.Path("/etc/os-release").read_text().splitlines()
    codename = next(line.split("=")[1] for line in lines if line.startswith("VERSION_CODENAME="))
    mirrors = subprocess.check_output(["apt-get", "indextargets", "--format", "$(CODENAME) $(REPO_URI)", "Created-By: Packages"],
                                      text=True).split("\n")
    return codename, next(line.split()[1] for line in mirrors if line.split()[:1] == [codename])


def in_folder(root, command, **more):
    """Runs a program in a root folder that is not booted, with the host's network."""
    subprocess.run(["unshare", "--mount", "--pid", "--fork", "--kill-child", f"--root={root}", "--mount-proc", *command], check=True,
                   env=ENVIRONMENT | PROXIES, **more)


def base():
    """The root folder that machines are copies of: Debian's smallest system, systemd and PostgreSQL. Made once for each Debian."""
    codename, mirror = system()
    done = PLACE / f"machine-{codename}"
    if not done.exists():
        making = PLACE / f"making-{codename}"
        shutil.rmtree(making, ignore_errors=True)
        subprocess.run(["debootstrap", "--variant=minbase", "--include=systemd-sysv,dbus", codename, making, mirror], check=True,
                       stdout=subprocess.DEVNULL, env=os.environ | ENVIRONMENT)
        shutil.copytree("/etc/apt/apt.conf.d", making / "etc/apt/apt.conf.d", dirs_exist_ok=True)
        shutil.copy("/etc/resolv.conf", making / "etc/resolv.conf")
        in_folder(making, [*INSTALL, "postgresql"], stdout=subprocess.DEVNULL)
        # The package takes another port if the host, whose network it sees here, uses PostgreSQL's.
        for settings in making.glob("etc/postgresql/*/main/postgresql.conf"):
            settings.write_text(re.sub("^port = .*", "port = 5432", settings.read_text(), flags=re.M))
        making.rename(done)
    return done


class Machine:
    def __init__(self, **versions):
        """Copies the base, puts the packages of each version into the folder of its name, and downloads what they need."""
        self.root = PLACE / "machine"
        self.nspawn = None
        shutil.rmtree(self.root, ignore_errors=True)
        subprocess.run(["cp", "-a", base(), self.root], check=True)
        shutil.copy("/etc/resolv.conf", self.root / "etc/resolv.conf")
        in_folder(self.root, ["apt-get", "update", "-q"], stdout=subprocess.DEVNULL)
        for name, packages in versions.items():
            (self.root / name).mkdir()
            for package in packages:
                shutil.copy(package, self.root / name)
            files = [f"/{name}/{package.name}" for package in packages]
            in_folder(self.root, [*INSTALL, "--download-only", *files], stdout=subprocess.DEVNULL)

    def boot(self):
        # Debian 12's systemd-nspawn does not know Landlock, which the sandbox of jobs needs.
        landlock = "landlock_create_ruleset landlock_add_rule landlock_restrict_self"
        # Under another init than systemd there is no unit to make a new one beside.
        keep = [] if pathlib.Path("/run/systemd/system").exists() else ["--keep-unit"]
        self.nspawn = subprocess.Popen(["systemd-nspawn", "-q", "-D", self.root, "--boot", "--private-network", "--register=no", *keep,
                                        "--console=pipe", "--kill-signal=SIGRTMIN+3", "--machine=trainyard-test",
                                        f"--system-call-filter={landlock}"],
                                       stdin=subprocess.DEVNULL, stdout=open(PLACE / "machine.log", "w"), stderr=subprocess.STDOUT)
        self.leader = self.until(self.find_leader, 60, "systemd has started")
        # `degraded`: a unit of the base that cannot run in a container does not matter here.
        self.until(lambda: self.run("systemctl is-system-running", check=False).strip() in ("running", "degraded"), 120, "booted")

    def find_leader(self):
        assert self.nspawn.poll() is None, (PLACE / "machine.log").read_text()
        for child in pathlib.Path(f"/proc/{self.nspawn.pid}/task/{self.nspawn.pid}/children").read_text().split():
            if pathlib.Path(f"/proc/{child}/comm").read_text().strip() in ("systemd", "init"):
                return child
        return None

    def stop(self):
        if self.nspawn:
            self.nspawn.terminate()
            self.nspawn.wait(60)

    def run(self, command, check=True, user=None, timeout=600):
        """Runs a shell command in the machine and returns what it printed."""
        words = ["sh", "-ec", command]
        if user:
            words = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--reset-env", *words]
        done = subprocess.run(["nsenter", "-t", self.leader, "-m", "-u", "-i", "-n", "-p", "-C", *words], env=ENVIRONMENT, text=True,
                              cwd="/", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout)
        assert not check or done.returncode == 0, f"{command}: exit status {done.returncode}\n{done.stdout}"
        return done.stdout

    def until(self, condition, timeout_s, what):
        end = time.monotonic() + timeout_s
        while True:
            value = condition()
            if value:
                return value
            assert time.monotonic() < end, f"not within {timeout_s} s: {what}"
            time.sleep(0.1)
