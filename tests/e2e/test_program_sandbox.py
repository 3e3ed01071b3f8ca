"""What a program may not do, tried by one; and what it must be able to do inside of its sandbox.

All attacks run in real jobs on an executor of its own, beside a job that they aim at: after all of them it still runs, and
ends well. Everything is in /var/tmp: programs may use all of /dev/shm, where other tests have their files.
"""

import ctypes
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile

import pytest

from service_fixture import BIN, PATIENCE, SANDBOX, Service, wait_until
from terminals import has_terminals


def landlock_abi():
    abi = ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), 1)
    return max(abi, 0)


ABI = landlock_abi()
pytestmark = pytest.mark.skipif(ABI < 2, reason=f"this kernel's Landlock has ABI {ABI}, and files need 2")

# The job that is attacked: it has a secret in each place that belongs to it, and waits for a file in its own folder.
VICTIM = """
import json, os, time
work, checkpoints = os.environ["TRAINYARD_WORK"], os.environ["TRAINYARD_CHECKPOINTS"]
for folder in (work, checkpoints):
    with open(folder + "/secret", "w") as f:
        f.write("secret")
found = {name: os.environ[name] for name in ("TRAINYARD_METRICS", "MLFLOW_TRACKING_URI")}
with open("/proc/self/stat") as f:
    found.update(pid=os.getpid(), work=work, checkpoints=checkpoints)
print(json.dumps(found), flush=True)
while not os.path.exists(work + "/end"):
    time.sleep(0.05)
print(sorted(os.listdir(work)), open(work + "/secret").read(), open(checkpoints + "/secret").read())
"""

# Each function tries one thing. What it returns or raises is printed; a function runs in a process of its own.
ATTACKER = r"""
import ctypes, errno, json, os, signal, socket, subprocess, sys, urllib.error, urllib.request
A = json.loads(sys.argv[1])
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
WORK = os.environ["TRAINYARD_WORK"]

def call(number, *arguments):
    if libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]) < 0:
        raise OSError(ctypes.get_errno(), "")
    return "done"

def read(path): return open(path, "rb").read(1) and "done"
def write(path): os.close(os.open(path, os.O_WRONLY | os.O_CREAT)); return "done"

def read_token(): return read(A["token"])
def read_agents_identity(): return read(A["identity"])
def read_agents_spool(): return read(A["spool"])
def list_agents_directory(): return os.listdir(A["directory"]) and "done"
def read_excepted_data(): return read(A["excepted"])
def read_other_scratch(): return read(A["work"] + "/secret")
def list_other_scratch(): return os.listdir(A["work"]) and "done"
def read_other_checkpoints(): return read(A["checkpoints"] + "/secret")
def write_other_checkpoints(): return write(A["checkpoints"] + "/forged")
def write_other_metrics(): os.close(os.open(A["TRAINYARD_METRICS"], os.O_WRONLY | os.O_NONBLOCK)); return "done"
def read_other_environment(): return read("/proc/%d/environ" % A["pid"])
def read_other_memory(): return read("/proc/%d/mem" % A["pid"])
def read_by_other_root(): return read("/proc/%d/root/etc/passwd" % A["pid"])
def find_other_descriptor(): return os.readlink("/proc/%d/fd/1" % A["pid"]) and "done"
def read_agents_environment(): return read("/proc/%d/environ" % A["agent"])
def read_parents_environment(): return read("/proc/%d/environ" % A["parent"])

def use_other_tracker():
    try:
        urllib.request.urlopen(A["MLFLOW_TRACKING_URI"] + "/api/2.0/mlflow/experiments/get-by-name?experiment_name=x", timeout=20)
    except urllib.error.HTTPError as e:
        return "%d %s" % (e.code, e.read().decode())
    return "done"

def write_home(): return write(os.path.expanduser("~/trainyard-attack"))
def write_etc(): return write("/etc/trainyard-attack")
def write_usr(): return write("/usr/trainyard-attack")
def write_tmp(): return write("/tmp/trainyard-attack")
def write_outside(): return write(A["outside"] + "/file")
def make_outside(): return write(A["outside"] + "/new")
def write_data(): return write(A["data"] + "/new")
def write_code(): return write(os.environ["TRAINYARD_CODE"] + "/new")
def write_code_file():
    os.chmod(os.environ["TRAINYARD_CODE"] + "/file", 0o644)
    return write(os.environ["TRAINYARD_CODE"] + "/file")
def remove_outside(): os.remove(A["outside"] + "/file"); return "done"
def truncate_outside(): os.truncate(A["outside"] + "/file", 1); return "done"
def open_truncated_outside(): os.close(os.open(A["outside"] + "/file", os.O_RDONLY | os.O_TRUNC)); return "done"
def link_in_from_outside(): os.link(A["outside"] + "/file", WORK + "/link"); return write(WORK + "/link")
def link_out(): write(WORK + "/own1"); os.link(WORK + "/own1", A["outside"] + "/link"); return "done"
def rename_out(): write(WORK + "/own2"); os.rename(WORK + "/own2", A["outside"] + "/renamed"); return "done"
def rename_in(): os.rename(A["outside"] + "/file", WORK + "/renamed"); return "done"
def write_by_symbolic_link(): os.symlink(A["outside"] + "/file", WORK + "/way"); return write(WORK + "/way")
def read_by_symbolic_link(): os.symlink(A["token"], WORK + "/token"); return read(WORK + "/token")
def symbolic_link_outside(): os.symlink("/etc/passwd", A["outside"] + "/way"); return "done"
def folder_outside(): os.mkdir(A["outside"] + "/folder"); return "done"
def socket_outside(): socket.socket(socket.AF_UNIX).bind(A["outside"] + "/s"); return "done"
def make_device(): os.mknod(WORK + "/device", 0o600 | 0o060000, os.makedev(7, 0)); return "done"
def read_disk(): return read(A["disk"])
def write_kernel_settings(): return write("/proc/sys/kernel/core_pattern")
def write_oom_score(): return write("/proc/%d/oom_score_adj" % A["agent"])

def ptrace_agent(): return call(101, 0x4206, A["agent"], 0, 0)
def ptrace_parent(): return call(101, 0x4206, A["parent"], 0, 0)
def ptrace_other(): return call(101, 0x4206, A["pid"], 0, 0)
class Iovec(ctypes.Structure): _fields_ = [("base", ctypes.c_void_p), ("n", ctypes.c_size_t)]
def memory_of(pid, number):
    mine = ctypes.create_string_buffer(1)
    local, remote = Iovec(ctypes.addressof(mine), 1), Iovec(A["address"], 1)
    return call(number, pid, ctypes.byref(local), 1, ctypes.byref(remote), 1, 0)
def read_agents_memory(): return memory_of(A["agent"], 310)
def write_agents_memory(): return memory_of(A["agent"], 311)
def write_parents_memory(): return memory_of(A["parent"], 311)
def take_agents_descriptor():
    fd = call_fd(434, A["agent"], 0)
    return call(438, fd, 0, 0)
def call_fd(number, *arguments):
    fd = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) for a in arguments])
    if fd < 0: raise OSError(ctypes.get_errno(), "")
    return fd
def signal_agent(): os.kill(A["agent"], signal.SIGTERM); return "done"
def signal_parent(): os.kill(A["parent"], signal.SIGKILL); return "done"
def signal_other(): os.kill(A["pid"], signal.SIGKILL); return "done"
def abstract_socket(): s = socket.socket(socket.AF_UNIX); s.connect("\0" + A["abstract"]); return "done"

def mount(): return call(165, b"none", WORK.encode(), b"tmpfs", 0, 0)
def chroot(): os.chroot(WORK); return "done"
def unshare_user(): return call(272, 0x10000000)
def unshare_mounts(): return call(272, 0x00020000)
def setns(): return call(308, os.open("/proc/self/ns/net", os.O_RDONLY), 0)
def clone_namespace(): return call(56, 0x10000000 | 17, 0, 0, 0, 0)
def clone3(): return call(435, 0, 0)
def load_module(): return call(175, 0, 0, 0)
def load_kernel(): return call(246, 0, 0, 0, 0)
def bpf(): return call(321, 0, 0, 0)
def perf_events(): return call(298, 0, 0, -1, -1, 0)
def userfaultfd(): return call(323, 0)
def add_key(): return call(248, b"user", b"x", b"y", 1, -2)
def open_by_handle(): return call(304, -100, 0, 0)
def io_uring(): return call(425, 1, 0)
def set_clock(): return call(227, 0, 0)
def reboot(): return call(169, 0, 0, 0, 0)
def virtual_socket(): socket.socket(40, socket.SOCK_STREAM); return "done"
def terminal_input(): return call(16, 0, 0x5412, b"x")
def terminal_input_above_32_bits(): return call(16, 0, 0x100005412, b"x")
def x32_call(): return call(0x40000000 + 39)
def set_user_id():
    return "user " + subprocess.run([A["setuid"], "-u"], capture_output=True, text=True).stdout.strip() if A["setuid"] else "user"
def gain_privileges():
    return [line for line in open("/proc/self/status") if line.startswith("NoNewPrivs")][0].split()[1]

for name in A["names"]:
    end_in, end_out = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            said = globals()[name]()
        except OSError as e:
            said = errno.errorcode.get(e.errno, str(e))
        except BaseException as e:
            said = repr(e)
        os.write(end_out, str(said).encode())
        os._exit(0)
    os.close(end_out)
    said = b""
    while piece := os.read(end_in, 65536):
        said += piece
    os.close(end_in)
    status = os.waitpid(child, 0)[1]
    said = said.decode() or "signal %d" % os.WTERMSIG(status)
    print(json.dumps([name, said]), flush=True)
    print(name + ": " + said, file=sys.stderr, flush=True)
"""

FILES = ("EACCES",)
OUT = ("EACCES", "EXDEV")
CALL = ("EPERM",)
REFUSED = {
    "read_token": FILES, "read_agents_identity": FILES, "read_agents_spool": FILES, "list_agents_directory": FILES,
    "read_excepted_data": FILES, "read_other_scratch": FILES, "list_other_scratch": FILES, "read_other_checkpoints": FILES,
    "write_other_checkpoints": FILES, "write_other_metrics": FILES, "read_other_environment": FILES,
    "read_other_memory": FILES, "read_by_other_root": FILES, "find_other_descriptor": FILES,
    "read_agents_environment": FILES, "read_parents_environment": FILES,
    "write_home": FILES, "write_etc": FILES, "write_usr": FILES, "write_tmp": FILES, "write_outside": FILES,
    "make_outside": FILES, "write_data": FILES, "write_code": FILES, "write_code_file": FILES, "remove_outside": FILES,
    "link_in_from_outside": OUT, "link_out": OUT, "rename_out": OUT, "rename_in": OUT, "write_by_symbolic_link": FILES,
    "read_by_symbolic_link": FILES, "symbolic_link_outside": FILES, "folder_outside": FILES, "socket_outside": FILES,
    "make_device": ("EACCES", "EPERM"), "read_disk": FILES, "write_kernel_settings": FILES, "write_oom_score": FILES,
    "ptrace_agent": CALL, "ptrace_parent": CALL, "ptrace_other": CALL, "read_agents_memory": CALL,
    "write_agents_memory": CALL, "write_parents_memory": CALL, "take_agents_descriptor": CALL,
    "mount": CALL, "chroot": CALL, "unshare_user": CALL, "unshare_mounts": CALL, "setns": CALL, "clone_namespace": CALL,
    "clone3": ("ENOSYS",), "load_module": CALL, "load_kernel": CALL, "bpf": CALL, "perf_events": CALL,
    "userfaultfd": CALL, "add_key": CALL, "open_by_handle": CALL, "io_uring": CALL, "set_clock": CALL, "reboot": CALL,
    "virtual_socket": CALL, "terminal_input": CALL, "terminal_input_above_32_bits": CALL, "x32_call": ("signal 31",),
    "gain_privileges": ("1",),
}
if ABI >= 3:
    REFUSED.update(truncate_outside=FILES, open_truncated_outside=FILES)
if ABI >= 6:
    REFUSED.update(signal_agent=CALL, signal_parent=CALL, signal_other=CALL, abstract_socket=CALL)


class Unready(Exception):
    """What an executor logged that did not attach."""


class Place:
    """A service, and an executor with options of its own, on a disk."""

    def __init__(self, *options, wrapper=(), others=False):
        """wrapper: a command that runs the executor. others: other users reach the executor's folders."""
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="ty-sandbox-", dir="/var/tmp"))
        for name in ("service", "data", "outside", "temporary", "checkpoints"):
            (self.folder / name).mkdir()
        if others:
            self.folder.chmod(0o755)
            (self.folder / "temporary").chmod(0o1777)
        (self.folder / "data" / "text").write_text("text")
        (self.folder / "data" / "excepted").write_text("secret")
        (self.folder / "outside" / "file").write_text("text")
        self.service = Service(self.folder / "service", executors=0).start()
        (self.folder / "token").write_text(self.service.cli("token", "create", "agent", "--role", "EXECUTOR").stdout)
        self.executor = subprocess.Popen(
            [*wrapper, BIN / "trainyard-executor", "--controller", self.service.address, "--directory", self.folder / "agent", "--slots", "4",
             "--data-root", self.folder / "data", "--data-except", self.folder / "data" / "excepted", "--token-file",
             self.folder / "token", "--checkpoint-root", self.folder / "service" / "checkpoints", "--allow-programs", *options],
            stdout=subprocess.PIPE, stderr=open(self.folder / "log", "wb"), text=True,
            env={**self.service.environment(), "TMPDIR": str(self.folder / "temporary")})
        if not self.executor.stdout.readline().startswith("ready "):
            said = self.log()
            self.close()
            raise Unready(said)

    def log(self):
        return (self.folder / "log").read_text()

    def close(self):
        self.executor.terminate()
        self.executor.wait(40 * PATIENCE)
        self.executor.stdout.close()
        self.service.stop()
        shutil.rmtree(self.folder)

    def submit(self, script, *arguments, code=None, ranks=1, **program):
        spec = {"name": "program", "parallel": {"data": ranks},
                "program": {"command": [sys.executable, "-c", script, *map(str, arguments)], **program}}
        return self.service.submit(spec, *(("--code", code) if code else ()))

    def lines(self, job, stream="stdout"):
        text = self.service.cli("logs", job, "-o", "json").stdout
        return [line["text"] for page in text.splitlines() for line in json.loads(page)["lines"] if line["stream"] == stream]


@pytest.fixture(scope="module")
def place():
    made = Place("--sandbox", SANDBOX)
    yield made
    made.close()


def attacked(place):
    """The facts that the attacked job prints. At the end nothing of it has changed."""
    job = place.submit(VICTIM)
    wait_until(lambda: place.lines(job), 60, "the facts of the attacked job")
    facts = json.loads(place.lines(job)[0])
    yield facts
    (pathlib.Path(facts["work"]) / "end").touch()
    place.service.wait_end(job)
    assert place.lines(job)[-1] == "['end', 'secret'] secret secret"
    assert place.executor.poll() is None


@pytest.fixture(scope="module")
def victim(place):
    yield from attacked(place)


@pytest.fixture(scope="module")
def setuid(place):
    """A copy of `id` that runs as another user; None without root."""
    if os.geteuid() != 0:
        return None
    path = place.folder / "id"
    shutil.copy("/usr/bin/id", path)
    os.chown(path, 65534, 65534)
    path.chmod(0o4755)
    return str(path)


def attack(place, victim, setuid=None):
    """{attack: what became of it}, of one job that tries all."""
    code = place.folder / "code"
    code.mkdir()
    (code / "file").write_text("text")
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("\0" + place.folder.name)
    listener.listen()
    inside = pathlib.Path(f"/proc/{victim['pid']}/stat").read_text().rpartition(")")[2].split()
    spool = [path for path in (place.folder / "agent" / "spool").rglob("*") if path.is_file()]
    identity = [path for path in (place.folder / "agent").iterdir() if path.is_file() and path.stat().st_size]
    facts = {
        **victim, "token": str(place.folder / "token"), "identity": str(identity[0]), "spool": str(spool[0]),
        "directory": str(place.folder / "agent"), "excepted": str(place.folder / "data" / "excepted"),
        "outside": str(place.folder / "outside"), "data": str(place.folder / "data"), "agent": place.executor.pid,
        "parent": int(inside[1]), "address": id(victim), "abstract": place.folder.name, "setuid": setuid,
        "disk": next((str(path) for path in pathlib.Path("/dev").iterdir() if path.is_block_device()), "/dev/kmsg"),
        "names": [*REFUSED, "use_other_tracker", "set_user_id"],
    }
    job = place.submit(ATTACKER, json.dumps(facts), code=code)
    try:
        place.service.wait_end(job)
        found = dict(json.loads(line) for line in place.lines(job))
    finally:
        listener.close()
    assert len(place.lines(job, "stderr")) == len(found), "each attack ends with a message"
    return found


@pytest.fixture(scope="module")
def outcomes(place, victim, setuid):
    return attack(place, victim, setuid)


@pytest.mark.parametrize("attack", REFUSED)
def test_an_attack_is_refused(outcomes, attack):
    assert outcomes[attack] in REFUSED[attack]


def test_attacks_leave_nothing_outside(place, outcomes):
    assert outcomes
    assert os.listdir(place.folder / "outside") == ["file"] and (place.folder / "outside" / "file").read_text() == "text"
    assert sorted(os.listdir(place.folder / "data")) == ["excepted", "text"]
    for path in ("/etc/trainyard-attack", "/usr/trainyard-attack", "/tmp/trainyard-attack", "~/trainyard-attack"):
        assert not os.path.exists(os.path.expanduser(path))


def test_another_jobs_tracking_server_refuses_calls_without_its_token(outcomes):
    code, _, said = outcomes["use_other_tracker"].partition(" ")
    assert code in ("401", "403") and "token" in said


@pytest.mark.skipif(os.geteuid() != 0, reason="making a file of another user needs root")
def test_a_set_user_id_program_keeps_the_user(outcomes):
    assert outcomes["set_user_id"] == "user 0"


# ---- what must still work ----

INSIDE = r"""
import json, mmap, multiprocessing, multiprocessing.shared_memory, os, pty, socket, struct, subprocess, tempfile, threading
work, folder = os.environ["TRAINYARD_WORK"], os.environ["TRAINYARD_CHECKPOINTS"]

def add(name, lock, n):
    memory = multiprocessing.shared_memory.SharedMemory(name)
    for _ in range(n):
        with lock:
            memory.buf[0] += 1
    memory.close()

def shared_memory_and_semaphores():
    memory = multiprocessing.shared_memory.SharedMemory(create=True, size=16)
    lock = multiprocessing.Lock()
    all = [multiprocessing.Process(target=add, args=(memory.name, lock, 50)) for _ in range(4)]
    [p.start() for p in all], [p.join() for p in all]
    found = memory.buf[0]
    memory.close(), memory.unlink()
    return found == 200

def pools_and_queues():
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        return pool.map(abs, [-1, -2]) == [1, 2]

def manager():
    with multiprocessing.Manager() as m:
        return m.dict(a=1)["a"] == 1

def threads():
    found = []
    all = [threading.Thread(target=lambda: found.append(1)) for _ in range(20)]
    [t.start() for t in all], [t.join() for t in all]
    return len(found) == 20

def subprocesses():
    return subprocess.run("echo a | cat > $TMPDIR/x; cat $TMPDIR/x >> /dev/stdout; ls /dev/null /dev | wc -l", shell=True,
                          capture_output=True, text=True, check=True).stdout.startswith("a\n")

def temporary_files():
    with tempfile.NamedTemporaryFile(dir=None) as f, tempfile.TemporaryDirectory() as d:
        return f.name.startswith(os.environ["TMPDIR"]) and os.path.isdir(d)

def sockets():
    server = socket.create_server(("127.0.0.1", 0))
    client = socket.create_connection(server.getsockname())
    local = socket.socket(socket.AF_UNIX)
    local.bind(work + "/socket")
    a, b = socket.socketpair()
    abstract = socket.socket(socket.AF_UNIX)
    abstract.bind("\0own-" + os.environ["TRAINYARD_JOB"])
    abstract.listen()
    own = socket.socket(socket.AF_UNIX)
    own.connect("\0own-" + os.environ["TRAINYARD_JOB"])
    a.sendall(b"x")
    return b.recv(1) == b"x"

def signals_to_children():
    child = subprocess.Popen(["sleep", "100"])
    os.kill(child.pid, 15)
    return child.wait() == -15

def environment_of_children():
    child = subprocess.Popen(["sh", "-c", "echo; sleep 100"], stdout=subprocess.PIPE)
    child.stdout.readline()
    found = open("/proc/%d/environ" % child.pid).read()
    child.kill(), child.wait()
    return "TRAINYARD_JOB=" in found

def git():
    run = lambda *words: subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *words], cwd=work + "/repository", check=True, capture_output=True)
    os.mkdir(work + "/repository")
    open(work + "/repository/file", "w").close()
    run("init"), run("add", "file"), run("commit", "-m", "x"), run("clone", ".", work + "/clone")
    return os.path.exists(work + "/clone/file")

def stop_file():
    with open(os.environ["TRAINYARD_STOP"], "r+b") as f:
        shared = mmap.mmap(f.fileno(), 16)
    struct.pack_into("=q", shared, 8, 3)
    return struct.unpack_from("=q", shared)[0] > 3

def checkpoint_by_rename():
    os.makedirs(folder + "/step-1.tmp/deep")
    open(folder + "/step-1.tmp/deep/weights", "w").write("weights")
    os.rename(folder + "/step-1.tmp/deep/weights", folder + "/step-1.tmp/weights")     # to another folder
    os.rename(folder + "/step-1.tmp", folder + "/step-1")
    return True

def checkpoint_by_hard_link():
    os.mkdir(folder + "/step-2.tmp")
    os.link(folder + "/step-1/weights", folder + "/step-2.tmp/weights")
    os.rename(folder + "/step-2.tmp", folder + "/step-2")
    return True

def truncation():
    open(work + "/long", "w").write("long")
    os.truncate(work + "/long", 1)
    return os.path.getsize(work + "/long") == 1

def metrics():
    open(os.environ["TRAINYARD_METRICS"], "w").write('{"step": 7, "loss": 1.5}\n')
    return True

def data_and_code():
    return open(os.environ["DATA"] + "/text").read() == "text" and sorted(os.listdir(os.environ["DATA"])) == ["excepted", "text"] \
        and open("file").read() == "text" and os.listdir(os.environ["TRAINYARD_CODE"]) == ["file"]

def terminals():
    end, child = os.openpty()
    os.write(child, b"x")
    return os.read(end, 1) == b"x" and os.isatty(child) and subprocess.run(["stty", "rows", "30"], stdin=child).returncode == 0

def caches():
    names = ("XDG_CACHE_HOME", "TRITON_CACHE_DIR", "NUMBA_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")
    for name in names:
        os.makedirs(os.environ[name] + "/new")
        open(os.environ[name] + "/new/file", "w").close()
    return os.environ["MPLCONFIGDIR"] == "own" and all(os.environ[name].startswith(os.environ["TMPDIR"] + "/") for name in names)

def processes():
    return open("/proc/self/maps").read() and os.listdir("/proc/self/task") and open("/proc/meminfo").read() and os.cpu_count()

if __name__ == "__main__":
    for name in ("shared_memory_and_semaphores", "pools_and_queues", "manager", "threads", "subprocesses", "temporary_files",
                 "sockets", "signals_to_children", "environment_of_children", "git", "stop_file", "checkpoint_by_rename",
                 "checkpoint_by_hard_link", "truncation", "metrics", "data_and_code", "terminals", "caches", "processes"):
        try:
            said = "yes" if globals()[name]() else "no"
        except Exception as e:
            said = repr(e)
        print(json.dumps([name, said]), flush=True)
"""


@pytest.mark.skipif(not shutil.which("git"), reason="there is no git")
def test_usual_programs_work_inside(place):
    code = place.folder / "inside"
    code.mkdir()
    (code / "file").write_text("text")
    script = place.folder / "data-inside.py"  # `spawn` reads it again
    script.write_text(INSIDE)
    spec = {"name": "inside", "parallel": {"data": 1},
            "program": {"command": [sys.executable, str(script)], "stop": "step",
                        "environment": {"DATA": str(place.folder / "data"), "MPLCONFIGDIR": "own"}}}
    job = place.service.submit(spec, "--code", code)
    place.service.wait_end(job)
    found = dict(json.loads(line) for line in place.lines(job))
    if not has_terminals():
        found.pop("terminals")
    assert found and {name: said for name, said in found.items() if said != "yes"} == {}, place.lines(job, "stderr")
    assert place.service.series(job, "loss")["mean"] == [1.5]
    steps = [int(checkpoint["step"]) for checkpoint in place.service.json("checkpoints", job)["checkpoints"]]
    assert sorted(steps) == [1, 2]


MODELS = """
import os
names = ("HF_HOME", "TORCH_HOME", "XDG_CACHE_HOME")
print(*(os.environ.get(name, "").replace(os.environ["TMPDIR"], "TMPDIR") or "none" for name in names))
if "HF_HOME" in os.environ:
    print(open(os.environ["HF_HOME"] + "/model").read())
"""


def test_models_in_the_cache_of_the_home_folder_are_found(place, monkeypatch):
    cache = place.folder / "home" / ".cache" / "huggingface"
    cache.mkdir(parents=True)
    (cache / "model").write_text("weights")
    for name in ("HF_HOME", "TORCH_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(place.folder / "home"))
    other = Place("--sandbox", SANDBOX)
    try:
        job = other.submit(MODELS)
        other.service.wait_end(job)
        assert other.lines(job) == [f"{cache} none TMPDIR/cache", "weights"]
        job = other.submit(MODELS, environment={"HOME": "/nowhere"})
        other.service.wait_end(job)
        assert other.lines(job) == ["none none none"]
    finally:
        other.close()


# ---- floods ----

def sibling(place):
    """A job that ends when its folder has a file, and a function that ends it well."""
    job = place.submit(VICTIM)
    wait_until(lambda: place.lines(job), 60, "the facts of the other job")
    work = pathlib.Path(json.loads(place.lines(job)[0])["work"])

    def end():
        (work / "end").touch()
        place.service.wait_end(job)
    return end


def bytes_below(folder):
    found = 0
    for path in folder.rglob("*"):
        try:
            found += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            pass
    return found


GIB = 1 << 30


@pytest.mark.waits
def test_gibibytes_of_log_neither_fill_the_disk_nor_stop_another_job(place):
    """TRAINYARD_TEST_LOG_GIB=10 takes five minutes."""
    size = int(os.environ.get("TRAINYARD_TEST_LOG_GIB", 1)) * GIB
    end = sibling(place)
    before = bytes_below(place.folder)
    job = place.service.submit({"name": "flood", "parallel": {"data": 1},
                                "program": {"command": ["sh", "-c", f"yes 0123456789abcdef | head -c {size}; echo end >&2"]}})
    place.service.wait_end(job, timeout_s=300)
    end()
    assert place.lines(job, "stderr")[-1] == "end"
    assert bytes_below(place.folder) - before < 300 << 20


@pytest.mark.waits
def test_a_million_names_of_metrics_become_960_and_events(place):
    end = sibling(place)
    job = place.submit("import os\nwith open(os.environ['TRAINYARD_METRICS'], 'w') as f:\n"
                       "    for i in range(1000000): f.write('{\"step\": %d, \"name-%d\": 1}\\n' % (i, i))\n")
    place.service.wait_end(job, timeout_s=300)
    end()
    assert len({series["name"] for series in place.service.json("metrics", job, "--points", "1")["series"]}) == 960
    said = [event["message"] for event in place.service.json("events", job)["events"] if event["kind"] == "metric_refused"]
    assert len(said) <= 20 and said[-1] == "999040 points of further metrics were not stored", said


# ---- models, and the options ----

def status_of(pid):
    lines = pathlib.Path(f"/proc/{pid}/status").read_text().splitlines()
    return {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}


def test_a_models_rank_trains_in_a_sandbox(place, tiny):
    shutil.copy(tiny()["data"]["text"]["files"][0].removeprefix("file://"), place.folder / "data" / "words")
    data = {"files": [f"file://{place.folder / 'data' / 'words'}"], "validation_fraction": 0.1}
    job = place.service.submit(tiny(steps=100000, data__text=data))
    with place.service.watch(job) as watch:
        watch.until_event("checkpoint_committed")
    status = status_of(place.service.worker_pids(job)[0][0])
    assert (status["Seccomp"], status["NoNewPrivs"]) == ("2", "1")
    place.service.cli("cancel", job)
    place.service.wait_end(job, "CANCELLED")
    (place.folder / "data" / "words").unlink()


def executor_of(folder, *options):
    return subprocess.run([BIN / "trainyard-executor", "--controller", "unix:" + str(folder / "no.sock"), "--directory",
                           folder / "agent", "--checkpoint-root", folder, *options], capture_output=True, text=True,
                          timeout=60 * PATIENCE)


def test_require_without_a_user_of_its_own_is_an_error_that_says_so(tmp_path):
    done = executor_of(tmp_path, "--sandbox", "require")
    said = [line for line in done.stderr.splitlines() if line.startswith("trainyard-executor: ")]
    assert done.returncode == 1 and len(said) == 1
    assert said[0].startswith("trainyard-executor: --sandbox require: not enforced: ") and "no --worker-user" in said[0]


def test_an_unknown_mode_is_refused(tmp_path):
    done = executor_of(tmp_path, "--sandbox", "on")
    assert done.returncode == 2 and "--sandbox: 'on' is not one of its values" in done.stderr


def test_the_executor_logs_what_it_cannot_enforce(place):
    lines = [line for line in place.log().splitlines() if "not_enforced" in line]
    assert sum("no --worker-user" in line for line in lines) == 1
    assert sum("below ABI 3" in line for line in lines) == (ABI < 3)
    assert sum("below ABI 6" in line for line in lines) == (ABI < 6)


def test_the_executor_logs_a_writable_root_above_something_hidden():
    opened = tempfile.mkdtemp(prefix="ty-writable-", dir="/var/tmp")
    made = Place("--sandbox", SANDBOX, "--writable-root", "/var/tmp", "--writable-root", opened)
    try:
        lines = [line for line in made.log().splitlines() if "writable_root" in line]
        assert len(lines) == 1 and "--writable-root '/var/tmp' has '" in lines[0] and str(made.folder) in lines[0]
        job = made.submit("import os, sys\nfor folder in sys.argv[1:]:\n"
                          "    try:\n        os.close(os.open(folder + '/ty-new', os.O_CREAT | os.O_WRONLY)); print('made')\n"
                          "    except OSError as e:\n        print(type(e).__name__)\n", "/var/tmp", opened)
        made.service.wait_end(job)
        assert made.lines(job) == ["PermissionError", "made"]
    finally:
        made.close()
        shutil.rmtree(opened)


@pytest.mark.skipif(os.geteuid() != 0, reason="starting processes as other users needs root")
@pytest.mark.skipif(ABI < 6, reason=f"--sandbox require needs ABI 6 of Landlock; this kernel has {ABI}")
def test_require_with_a_user_of_its_own_runs_programs_and_gangs(tiny):
    try:
        made = Place("--sandbox", "require", "--worker-user", "nobody")
    except Unready as e:
        assert "--sandbox require: not enforced: " in str(e)
        pytest.skip(str(e))
    try:
        for path in (made.folder, made.folder / "service"):
            path.chmod(0o755)
        (made.folder / "temporary").chmod(0o1777)
        (made.folder / "service" / "checkpoints").mkdir(exist_ok=True)
        os.chown(made.folder / "service" / "checkpoints", 65534, 65534)
        job = made.submit("import os\nprint(os.getuid(), os.access('/', os.W_OK))\n"
                          "open(os.environ['TRAINYARD_WORK'] + '/x', 'w')\n")
        made.service.wait_end(job)
        assert made.lines(job) == ["65534 False"]
        shutil.copy(tiny()["data"]["text"]["files"][0].removeprefix("file://"), made.folder / "data" / "words")
        (made.folder / "data" / "words").chmod(0o644)
        data = {"files": [f"file://{made.folder / 'data' / 'words'}"], "validation_fraction": 0.1}
        made.service.wait_end(made.service.submit(tiny(steps=10, data=2, data__text=data)))
    finally:
        made.close()
