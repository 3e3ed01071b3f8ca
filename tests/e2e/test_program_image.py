"""Programs in an image: what their command sees, what it gets as any other, what it may not do, and how it ends.

The images are made of this machine's own files: Python with its library, or busybox alone. Nothing is downloaded.
"""

import gzip
import hashlib
import http.server
import io
import json
import os
import pathlib
import pwd
import shutil
import signal
import socket
import ssl
import struct
import subprocess
import sys
import sysconfig
import tarfile
import tempfile
import threading

import pytest

from service_fixture import SANDBOX, make_service, process_start_time, wait_until
from test_program_sandbox import ABI, REFUSED, Place, attack, attacked

BUSYBOX = shutil.which("busybox")


def copy_tree(source, to):
    """By hard links where that is possible."""
    to.parent.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(["cp", "-al", source, to], capture_output=True).returncode == 0
    if not done:
        shutil.rmtree(to, ignore_errors=True)
        subprocess.run(["cp", "-a", source, to], check=True)


def make_root(root):
    """A root folder with this Python, and a shell if there is busybox."""
    library = pathlib.Path(sysconfig.get_path("stdlib"))
    copy_tree(library, root / library.relative_to("/"))
    executable = pathlib.Path(os.path.realpath(sys.executable))
    files = {executable}
    for binary in (executable, *(library / "lib-dynload").glob("*.so")):
        said = subprocess.run(["ldd", binary], capture_output=True, text=True).stdout
        files |= {pathlib.Path(word) for word in said.split() if word.startswith("/")}
    for path in files:
        to = root / path.relative_to("/")
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(os.path.realpath(path), to)
    for name in ("python3", executable.name):
        to = root / "usr" / "bin" / name
        to.parent.mkdir(parents=True, exist_ok=True)
        if not to.exists():
            to.symlink_to(os.path.relpath(root / executable.relative_to("/"), to.parent))
    if BUSYBOX:
        (root / "bin").mkdir(exist_ok=True)
        shutil.copy2(BUSYBOX, root / "bin" / "busybox")
        for name in ("sh", "cat", "ls", "sleep"):
            (root / "bin" / name).symlink_to("busybox")
    (root / "etc").mkdir(exist_ok=True)
    (root / "etc" / "image").write_text("of the image")
    (root / "link-out").symlink_to("/etc/image")
    return root


class ImagePlace(Place):
    def __init__(self, *options, **more):
        super().__init__(*options, **more)
        self.root = make_root(self.folder / "data" / "root")

    def submit(self, script, *arguments, image=None, **more):
        return super().submit(script, *arguments, image=image or {"root": str(self.root)}, **more)



def started(*options, **more):
    made = ImagePlace("--sandbox", SANDBOX, *options, **more)
    refused = [line for line in made.log().splitlines() if "no_images" in line]
    if refused:
        made.close()
        pytest.skip("this host cannot run images: " + refused[0])
    return made


@pytest.fixture(scope="module")
def certificate():
    folder = pathlib.Path(tempfile.mkdtemp(dir="/var/tmp"))
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
                    "-subj", "/CN=registry", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", folder / "key", "-out",
                    folder / "certificate"], check=True, capture_output=True)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="module")
def place(certificate):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SSL_CERT_FILE", str(certificate / "certificate"))  # of the registry
        made = started()
    yield made
    made.close()


@pytest.fixture(scope="module")
def place_of_nobody():
    """Ranks are another user without privileges, so that a namespace of users is needed."""
    cache = pathlib.Path(tempfile.mkdtemp(prefix="ty-images-", dir="/var/tmp"))
    cache.chmod(0o755)
    made = started("--worker-user", "nobody", "--environment-cache", cache, others=True)
    (made.folder / "service").chmod(0o755)
    for path in (made.folder / "service" / "checkpoints", *(made.folder / "service" / "checkpoints").iterdir()):
        os.chown(path, pwd.getpwnam("nobody").pw_uid, -1)
    yield made
    made.close()
    subprocess.run(["rm", "-rf", cache], check=True)


def of_image(place, script, *arguments, **more):
    """The lines of a job that succeeded."""
    job = place.submit(script, *arguments, **more)
    place.service.wait_end(job)
    return place.lines(job)


# ---- what the command sees ----

SEES = """
import json, os, sys
def has(path): return os.path.exists(path)
def lists(path): return sorted(os.listdir(path))
open("/tmp/x", "w").write("private")
open(os.environ["TMPDIR"] + "/y", "w").write("private")
print(json.dumps({
    "image": [open("/etc/image").read(), open("/link-out").read()], "host": [has("/etc/hostname"), has("/usr/sbin")],
    "root": lists("/"), "data": open(sys.argv[1] + "/text").read(), "work": os.getcwd() == os.environ["TRAINYARD_WORK"],
    "code": lists(os.environ["TRAINYARD_CODE"]) if len(sys.argv) > 2 else [], "path": os.environ["PATH"],
    "home": os.access(os.environ["HOME"], os.W_OK), "user": [os.getuid(), os.getgid(), os.environ["USER"]],
    "owner": [os.stat("/tmp/x").st_uid, os.stat("/etc/image").st_uid], "parent": has("/proc/%d/stat" % os.getppid()),
    "devices": [open("/dev/null", "w").write("x"), has("/dev/fd/0"), has("/dev/shm"), len(open("/dev/urandom", "rb").read(4))],
    "inherited": [fd for fd in range(3, 64) if os.path.isdir("/proc/self/fd/%d" % fd)],
    "names": has("/etc/resolv.conf"), "temporary": {"x", "y"} <= set(os.listdir("/tmp"))}))
"""


def see(place, user, owner, **more):
    found = json.loads(of_image(place, SEES, place.folder / "data", **more)[0])
    assert found == {
        "image": ["of the image"] * 2, "host": [False, False], "root": found["root"], "data": "text", "work": True, "code": [],
        "path": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "home": True, "user": [*user, "job"],
        "owner": [user[0], owner], "parent": True, "devices": [1, True, True, 4], "inherited": [], "names": os.path.exists("/etc/resolv.conf"),
        "temporary": True}
    assert {"etc", "usr", "proc", "sys", "dev", "tmp"} <= set(found["root"]) and "home" not in found["root"]


def test_the_command_sees_the_image_and_the_folders_of_its_job(place):
    see(place, [os.getuid(), os.getgid()], os.getuid())


@pytest.mark.skipif(os.geteuid() != 0, reason="ranks of another user need root")
def test_a_user_without_privileges_sees_the_same_and_keeps_its_number(place_of_nobody):
    nobody = pwd.getpwnam("nobody")
    see(place_of_nobody, [nobody.pw_uid, nobody.pw_gid], 65534)


REPORTS = """
import json, os, time
folder, resume = os.environ["TRAINYARD_CHECKPOINTS"], os.environ["TRAINYARD_RESUME"]
first = json.load(open(resume))["step"] + 1 if resume else 1
metrics = open(os.environ["TRAINYARD_METRICS"], "w", buffering=1)
for step in range(first, 5):
    metrics.write(json.dumps({"step": step, "loss": 1 / step}) + "\\n")
    if os.environ["RANK"] == "0":
        with open(f"{folder}/step-{step}.tmp", "w") as f:
            json.dump({"step": step}, f)
        os.rename(f"{folder}/step-{step}.tmp", f"{folder}/step-{step}")
    if step == 2 and not resume:
        while os.environ["RANK"] == "0" or not os.path.exists(folder + "/step-2.json"):
            time.sleep(0.05)
        os.kill(os.getpid(), 9)
print("from", first, os.environ["SECRET_WORD"])
"""


def test_metrics_checkpoints_and_secrets_are_those_of_any_program(place):
    place.service.cli("secret", "set", "WORD", input="swordfish")
    job = place.submit(REPORTS, ranks=2, secrets={"SECRET_WORD": "WORD"})
    ended = place.service.wait_end(job)
    assert ended["attempt"] == 2, ended
    assert place.service.metric(job, "loss") == {1: 1.0, 2: 0.5, 3: 1 / 3, 4: 0.25}
    assert place.lines(job)[-2:] == ["from 3 ***"] * 2


# ---- what it may not do ----

@pytest.fixture(scope="module")
def victim(place):
    yield from attacked(place)


@pytest.fixture(scope="module")
def outcomes(place, victim):
    return attack(place, victim)


@pytest.fixture(scope="module")
def outcomes_of_nobody(place_of_nobody):
    facts = attacked(place_of_nobody)
    yield attack(place_of_nobody, next(facts))
    next(facts, None)


# What differs in an image: /tmp and the home folder are private; what is not mounted is not there, and what is cannot be written.
GONE = ("ENOENT", "EACCES", "EROFS")
IN_IMAGE = {
    **REFUSED, **{name: GONE for name, expected in REFUSED.items() if "EACCES" in expected},
    "write_tmp": ("done",), "write_home": ("done",), "rename_out": GONE, "link_out": GONE, "link_in_from_outside": GONE, "rename_in": GONE,
    "make_device": ("EACCES", "EPERM"),
}


@pytest.mark.skipif(ABI < 2, reason=f"this kernel's Landlock has ABI {ABI}, and files need 2")
@pytest.mark.parametrize("name", IN_IMAGE)
def test_an_attack_is_refused_in_an_image(outcomes, name):
    assert outcomes[name] in IN_IMAGE[name]


@pytest.mark.skipif(ABI < 2, reason=f"this kernel's Landlock has ABI {ABI}, and files need 2")
@pytest.mark.skipif(os.geteuid() != 0, reason="ranks of another user need root")
def test_attacks_are_refused_in_an_image_of_a_user_without_privileges(outcomes_of_nobody):
    assert {name: said for name, said in outcomes_of_nobody.items() if name in IN_IMAGE and said not in IN_IMAGE[name]} == {}


def test_attacks_change_neither_the_image_nor_the_host(place, outcomes):
    assert outcomes
    assert (place.root / "etc" / "image").read_text() == "of the image" and not (place.root / "etc" / "trainyard-attack").exists()
    assert os.listdir(place.folder / "outside") == ["file"] and (place.folder / "outside" / "file").read_text() == "text"
    for path in ("/etc/trainyard-attack", "/usr/trainyard-attack", "/tmp/trainyard-attack"):
        assert not os.path.exists(path)


# ---- how it ends ----

def running(place, script, **more):
    """A job of which every process that it says it has started runs, and these processes."""
    job = place.submit(script, **more)
    wait_until(lambda: place.lines(job), 60, "the first line of the job")
    pids = [int(word) for word in place.lines(job)[0].split()]
    assert all(process_start_time(pid) for pid in pids)
    return job, pids


FAMILY = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen(["/usr/bin/python3", "-c", "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(1000)"],
                         start_new_session=True)
print(os.getpid(), child.pid, flush=True)
time.sleep(1000)
"""


def assert_gone(pids):
    wait_until(lambda: not any(process_start_time(pid) for pid in pids), 30, f"the end of {pids}")


@pytest.mark.parametrize("who", ["nobody", "own"])
def test_no_process_of_an_image_outlives_its_job(request, who):
    place = request.getfixturevalue("place" if who == "own" else "place_of_nobody")
    job, pids = running(place, FAMILY)
    place.service.cli("cancel", job)
    place.service.wait_end(job, "CANCELLED")
    assert_gone(pids)


@pytest.mark.parametrize("who", ["nobody", "own"])
def test_no_process_of_an_image_outlives_a_rank_that_was_killed(request, who):
    place = request.getfixturevalue("place" if who == "own" else "place_of_nobody")
    job, pids = running(place, FAMILY, environment={"WHO": who})
    rank = int(pathlib.Path(f"/proc/{pids[0]}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(rank, signal.SIGKILL)
    assert_gone(pids)
    place.service.cli("cancel", job)


@pytest.fixture
def service():
    yield from make_service(executors=1, slots=2)


def test_no_process_of_an_image_outlives_its_executor(place, service, tmp_path):
    """The executor is started again, and so is the job."""
    root = make_root(tmp_path / "root")
    job = service.submit({"name": "family", "program": {"command": ["python3", "-c", FAMILY], "image": {"root": str(root)}}})

    def printed():
        text = service.cli("logs", job, "-o", "json").stdout
        return [line["text"] for page in text.splitlines() for line in json.loads(page)["lines"] if line["stream"] == "stdout"]
    wait_until(printed, 60, "the first line of the job")
    pids = [int(word) for word in printed()[0].split()]
    os.kill(service.pid_of("trainyard-executor"), signal.SIGKILL)
    assert_gone(pids)
    wait_until(lambda: len(printed()) == 2, 60, "the first line of the second attempt")
    service.cli("cancel", job)
    service.wait_end(job, "CANCELLED")


def test_a_signal_reaches_the_command_and_its_exit_status_the_job(place):
    job, _ = running(place, """
import os, signal, sys, time
def end(*_): print("ends", flush=True); sys.exit(0)
signal.signal(signal.SIGTERM, end)
print(os.getpid(), flush=True)
while True: time.sleep(0.1)
""")
    place.service.cli("pause", job)
    with place.service.watch(job) as watch:
        watch.until_state("PAUSED")
    assert place.lines(job)[-1] == "ends"
    place.service.cli("cancel", job)
    job = place.submit("import sys; sys.exit(7)")
    assert "exited with status 7" in place.service.wait_end(job, "FAILED")["reason"]


def test_the_failure_of_a_program_in_an_image_has_its_sentence(place):
    job = place.submit("def step():\n    raise ValueError('expected 4 columns')\nstep()")
    assert "ValueError: expected 4 columns" in place.service.wait_end(job, "FAILED")["reason"]


# ---- what is refused before it runs ----

def refusal(place, image, command=("python3", "-c", ""), **program):
    path = place.folder / "refused.json"
    path.write_text(json.dumps({"name": "refused", "program": {"command": list(command), "image": image, **program}}))
    return place.service.cli("submit", path, status=2).stderr


def test_an_image_that_a_host_cannot_use_is_refused_by_submit(place):
    root = str(place.root)
    assert f"program.image.root: open '{root}/absent': No such file or directory" in refusal(place, {"root": root + "/absent"})
    assert "program.image.root: '/usr' is closed to jobs" in refusal(place, {"root": "/usr"})
    assert "program.image.root: " in refusal(place, {"root": root + "/etc/image"})
    assert "program.image.root: 'roots/one' is not an absolute path" in refusal(place, {"root": "roots/one"})
    assert "program.image" in refusal(place, {})
    assert "'absent' cannot be executed in the image: No such file" in refusal(place, {"root": root}, ["absent"])
    assert "'/etc/image' cannot be executed in the image: Permission denied" in refusal(place, {"root": root}, ["/etc/image"])
    assert "program.python: is built for the files of a host" in refusal(
        place, {"root": root}, python={"requirements": "/data/requirements.txt"})


def test_an_executor_without_the_right_to_make_namespaces_offers_no_images():
    """The kernel's limit is that of a namespace of users of its own, in which the executor runs."""
    if subprocess.run(["unshare", "--user", "--map-root-user", "true"], stderr=subprocess.DEVNULL).returncode != 0:
        pytest.skip("this system makes no namespace of users")
    script = "echo 0 > /proc/sys/user/max_mnt_namespaces && exec \"$@\""
    made = ImagePlace("--sandbox", SANDBOX, wrapper=["unshare", "--user", "--map-root-user", "sh", "-c", script, "sh"])
    try:
        assert "no_images" in made.log()
        path = made.folder / "submitted.json"
        path.write_text(json.dumps({"name": "x", "program": {"command": ["python3"], "image": {"root": str(made.root)}}}))
        said = made.service.cli("submit", path, status=2).stderr
        assert "program.image: this host cannot run images: a container needs a namespace of mounts, and the kernel's limit" in said
        job = made.service.cli("submit", path, "--skip-check").stdout.strip()
        why = made.service.cli("explain", job).stdout
        assert "that do not offer 'image'" in why and "no_images" in why
        made.service.cli("cancel", job)
    finally:
        made.close()


# ---- OCI images ----

class Oci:
    """An OCI image with one layer for each list of files: {name: bytes}, a str is a symbolic link, None a whiteout."""

    def __init__(self, *layers, environment=(), architecture=None):
        self.blobs = {}
        digests = [self.blob(gzip.compress(self.tar(files), 1)) for files in layers]
        machine = {"x86_64": "amd64", "aarch64": "arm64"}.get(os.uname().machine, os.uname().machine)
        config = self.blob(json.dumps({"architecture": architecture or machine, "os": "linux", "config": {"Env": list(environment)},
                                       "rootfs": {"type": "layers", "diff_ids": [f"sha256:{d}" for d in digests]}}).encode())
        self.manifest = json.dumps({
            "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": self.descriptor("application/vnd.oci.image.config.v1+json", config),
            "layers": [self.descriptor("application/vnd.oci.image.layer.v1.tar+gzip", d) for d in digests]}).encode()
        self.digest = self.blob(self.manifest)
        self.index = json.dumps({"schemaVersion": 2, "manifests": [
            self.descriptor("application/vnd.oci.image.manifest.v1+json", self.digest)]}).encode()

    @staticmethod
    def tar(files):
        made = io.BytesIO()
        with tarfile.open(fileobj=made, mode="w", format=tarfile.PAX_FORMAT) as tar:
            for name, data in files.items():
                info = tarfile.TarInfo(name)
                info.mode = 0o4755
                if isinstance(data, str):
                    info.type, info.linkname = tarfile.SYMTYPE, data
                elif data is None:
                    info.name = os.path.join(os.path.dirname(name), ".wh." + os.path.basename(name))
                else:
                    info.size = len(data)
                tar.addfile(info, io.BytesIO(data) if isinstance(data, bytes) else None)
        return made.getvalue()

    def blob(self, data):
        digest = hashlib.sha256(data).hexdigest()
        self.blobs[digest] = data
        return digest

    def descriptor(self, kind, digest):
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(self.blobs[digest])}

    def files(self):
        return {"oci-layout": b'{"imageLayoutVersion": "1.0.0"}', "index.json": self.index,
                **{f"blobs/sha256/{digest}": data for digest, data in self.blobs.items()}}

    def write_layout(self, folder):
        for name, data in self.files().items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(data)
        return str(folder)

    def write_archive(self, path):
        path.write_bytes(self.tar(self.files()))
        return str(path)


needs_busybox = pytest.mark.skipif(not BUSYBOX, reason="an image of a few files needs busybox-static")
SHOW = 'cat /etc/layer /bin/added /usr/bin/added; test -e /etc/gone || echo gone; ls /opt; echo "$GREETING $WORD"; touch /etc/new || echo read-only'


def small(**more):
    busybox = pathlib.Path(BUSYBOX).read_bytes()
    applets = {f"usr/bin/{name}": "busybox" for name in ("sh", "cat", "ls", "touch", "sleep")}
    return Oci({"usr/bin/busybox": busybox, **applets, "bin": "usr/bin", "etc/layer": b"lower\n", "etc/gone": b"", "opt/a/b": b""},
               {"./etc/layer": b"upper\n", "etc/gone": None, "bin/added": b"added\n", "opt/a": None, "opt/c": b""},
               environment=["GREETING=hello", "WORD=image", "TRAINYARD_JOB=forged"], **more)


def spec_of(image, *command, **program):
    return {"name": "oci", "program": {"command": list(command), "image": image, **program}}


def shows(place, image):
    job = place.service.submit(spec_of(image, "sh", "-c", SHOW, environment={"WORD": "spec"}))
    place.service.wait_end(job)
    assert place.lines(job) == ["upper", "added", "added", "gone", "c", "hello spec", "read-only"]
    return job


def events_of(place, job, kind):
    return [event["message"] for event in place.service.json("events", job)["events"] if event["kind"] == kind]


@needs_busybox
@pytest.mark.parametrize("form", ["archive", "layout"])
def test_an_oci_image_is_unpacked_once_for_each_host(place, form):
    image = small()
    path = place.folder / "data" / f"image-{form}"
    source = {"archive": image.write_archive(path) if form == "archive" else image.write_layout(path)}
    job = shows(place, source)
    assert len(events_of(place, job, "image_pulling")) == 1 and "is ready after" in events_of(place, job, "image_ready")[0]
    job = shows(place, source)
    assert events_of(place, job, "image_pulling") == []


@needs_busybox
@pytest.mark.skipif(os.geteuid() != 0, reason="ranks of another user need root")
def test_a_user_without_privileges_runs_an_oci_image(place_of_nobody):
    shows(place_of_nobody, {"archive": small().write_archive(place_of_nobody.folder / "data" / "archive")})


@needs_busybox
def test_a_wrong_oci_image_fails_the_job_with_its_sentence(place):
    data = place.folder / "data"
    image = small()
    layer = next(digest for digest, blob in image.blobs.items() if blob[:2] == b"\x1f\x8b")
    image.blobs[layer] = image.blobs[layer][:-1] + b"!"
    other = small(architecture="s390x")
    (data / "text.tar").write_bytes(b"no tar at all" * 100)
    outside = Oci({"etc/x": "/etc", "etc/x/../../../escaped": b"x"})
    for name, source, why in (("layer", image.write_archive(data / "layer"), "another SHA-256 than its manifest says"),
                              ("machine", other.write_layout(data / "machine"), "the image is for s390x"),
                              ("text", str(data / "text.tar"), "the archive of the image cannot be read"),
                              ("name", outside.write_archive(data / "name"), "an entry with a wrong name")):
        job = place.service.submit(spec_of({"archive": source}, "sh"))
        ended = place.service.wait_end(job, "FAILED")
        assert why in ended["reason"] and "program.image: " in ended["reason"], (name, ended["reason"])
        assert ended["attempt"] == 1, name
    job = place.service.submit(spec_of({"archive": small().write_archive(data / "good")}, "absent"))
    assert "'absent' cannot be executed in the image" in place.service.wait_end(job, "FAILED")["reason"]
    assert not pathlib.Path("/escaped").exists() and not (place.folder / "agent" / "escaped").exists()


@needs_busybox
def test_links_of_an_image_lead_to_its_own_files(place):
    """A layer that makes a link and writes through it writes into the image."""
    outside = place.folder / "outside"
    lower = {"usr/bin/sh": pathlib.Path(BUSYBOX).read_bytes(), "opt/x": b"", "way": "/opt", "out": str(outside)}
    image = Oci(lower, {"way/file": b"of the image"})
    job = place.service.submit(spec_of({"archive": image.write_archive(place.folder / "data" / "links")}, "sh", "-c",
                                       "read x < /opt/file; echo $x; test -u /usr/bin/sh || echo plain"))
    place.service.wait_end(job)
    assert place.lines(job) == ["of the image", "plain"] and not os.path.exists("/opt/file")
    image = Oci(lower, {"out/file": b"escaped"})
    job = place.service.submit(spec_of({"archive": image.write_archive(place.folder / "data" / "out")}, "sh"))
    assert "'out/file', which is in no folder" in place.service.wait_end(job, "FAILED")["reason"]
    assert (outside / "file").read_text() == "text"


# ---- images of apptainer and enroot ----

needs_squashfs = pytest.mark.skipif(not shutil.which("mksquashfs") or not shutil.which("unsquashfs"),
                                    reason="images of apptainer and enroot need squashfs-tools")
SIF_MACHINE = {"x86_64": b"02", "aarch64": b"04"}.get(os.uname().machine, b"00")


def make_squashfs(folder, files):
    """{name: bytes}, a str is a symbolic link. Closed to other users, as the root folder of many images."""
    root = folder / "squashfs-root"
    for name, data in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        if isinstance(data, str):
            (root / name).symlink_to(data)
        else:
            (root / name).write_bytes(data)
            (root / name).chmod(0o750)
    root.chmod(0o700)
    subprocess.run(["mksquashfs", root, folder / "image.sqsh", "-all-root", "-no-progress", "-quiet"], check=True)
    shutil.rmtree(root)
    return folder / "image.sqsh"


def make_sif(squashfs, name="image.sif", kind=1, machine=SIF_MACHINE):
    """As sif's Go package lays it out: a definition file, then the squashfs of the root."""
    def part(number, datatype, at, size, extra=b""):
        return struct.pack("<i?IIIqqqqqqq128s384s", datatype, True, number, 0xf0000001, 0, at, size, size, 0, 0, 0, 0, b"part", extra)
    data = squashfs.read_bytes()
    parts = part(1, 0x4001, 4096, 4) + part(2, 0x4004, 8192, len(data), struct.pack("<ii3s", kind, 2, machine))
    header = struct.pack("<32s10s3s3s16sqqqqqqqq", b"#!/usr/bin/env run-singularity\n", b"SIF_MAGIC", b"01", machine, b"x" * 16,
                         0, 0, 46, 48, 128, 48 * 585, 4096, 4096 + len(data))
    path = squashfs.with_name(name)
    path.write_bytes((header + parts + bytes(46 * 585)).ljust(4096, b"\0")[:4096] + b"text".ljust(4096, b"\0") + data)
    return path


def squashed(folder):
    busybox = pathlib.Path(BUSYBOX).read_bytes()
    return make_squashfs(folder, {
        "usr/bin/busybox": busybox, "usr/bin/sh": "busybox", "usr/bin/cat": "busybox", "bin": "usr/bin", "etc/layer": b"squashed\n",
        "etc/environment": b'GREETING=hello\nWORD=image\nTRAINYARD_JOB=forged\n# a comment\n',
        ".singularity.d/env/10-docker2singularity.sh": b'#!/bin/sh\nexport KIND="${KIND:-"a \\"sif\\""}"\n'})


SQUASHED = 'cat /etc/layer; echo "$GREETING $WORD $KIND $TRAINYARD_JOB"; echo x 2> /dev/null > /etc/new || echo read-only'


def shows_squashed(place, path):
    job = place.service.submit(spec_of({"archive": str(path)}, "sh", "-c", SQUASHED, environment={"WORD": "spec"}))
    place.service.wait_end(job)
    assert place.lines(job) == ["squashed", f'hello spec a "sif" {job.split("/")[-1]}', "read-only"]
    return job


@needs_busybox
@needs_squashfs
@pytest.mark.parametrize("who", ["own", "nobody"])
@pytest.mark.parametrize("form", ["sqsh", "sif"])
def test_an_image_of_apptainer_or_enroot_is_unpacked_once(request, form, who):
    place = request.getfixturevalue("place" if who == "own" else "place_of_nobody")
    folder = place.folder / "data" / form
    folder.mkdir()
    path = squashed(folder)
    path = make_sif(path) if form == "sif" else path
    job = shows_squashed(place, path)
    assert len(events_of(place, job, "image_pulling")) == 1 and "is ready after" in events_of(place, job, "image_ready")[0]
    assert events_of(place, shows_squashed(place, path), "image_pulling") == []


@needs_busybox
@needs_squashfs
def test_a_wrong_image_of_apptainer_or_enroot_fails_the_job(place):
    folder = place.folder / "data" / "wrong"
    folder.mkdir()
    path = squashed(folder)
    (folder / "short.sqsh").write_bytes(path.read_bytes()[:500])
    for source, why in ((folder / "short.sqsh", "File system corruption detected"),
                        (make_sif(path, "closed.sif", kind=5), "the .sif file has a root that is encrypted or no squashfs"),
                        (make_sif(path, "machine.sif", machine=b"11"), "the .sif file is for another kind of machine than this host")):
        ended = place.service.wait_end(place.service.submit(spec_of({"archive": str(source)}, "sh")), "FAILED")
        assert "program.image: " + why in ended["reason"] and ended["attempt"] == 1, ended


def test_an_oci_image_that_no_host_can_have_is_refused_by_submit(place):
    name = "registry.example/team/torch"
    assert "has no digest: add @sha256: and what `skopeo inspect" in refusal(place, {"name": name + ":2.5"})
    assert "is not REGISTRY/NAME@sha256:DIGEST" in refusal(place, {"name": "torch@sha256:" + "0" * 64})
    assert "needs one of root, name and archive" in refusal(place, {"root": "/a", "archive": "/b"})
    assert "program.image.archive: '/usr/x' is closed to jobs" in refusal(place, {"archive": "/usr/x"})
    assert "program.image.archive: " in refusal(place, {"archive": str(place.folder / "data" / "absent.tar")})


class Registry(http.server.BaseHTTPRequestHandler):
    """Serves the blobs and manifests of `images`: what skopeo asks a registry for."""
    images, asked = {}, []

    def do_GET(self):
        words = self.path.split("?")[0].strip("/").split("/")
        image = self.images.get(words[1]) if len(words) == 4 else None
        data = image.blobs.get(words[3].removeprefix("sha256:")) if image else b"{}" if words == ["v2"] else None
        self.asked.append(self.path)
        self.send_response(200 if data is not None else 404)
        self.send_header("Content-Type", json.loads(data).get("mediaType", "application/json") if data and words[2:3] == ["manifests"]
                         else "application/octet-stream")
        body = data if data is not None else b'{"errors": [{"code": "MANIFEST_UNKNOWN", "message": "manifest unknown"}]}'
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    do_HEAD = do_GET

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def registry(certificate):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "certificate", certificate / "key")
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


@needs_busybox
@pytest.mark.skipif(not shutil.which("skopeo"), reason="fetching an image needs skopeo")
def test_an_image_of_a_registry_is_fetched_once_by_its_digest(place, registry):
    image = small()
    Registry.images["small"] = image
    source = {"name": f"{registry}/small@sha256:{image.digest}"}
    job = shows(place, source)
    assert source["name"] in events_of(place, job, "image_pulling")[0]
    asked = len(Registry.asked)
    shows(place, source)
    assert len(Registry.asked) == asked
    job = place.service.submit(spec_of({"name": f"{registry}/small@sha256:{'0' * 64}"}, "sh"))
    ended = place.service.wait_end(job, "FAILED")
    assert "manifest unknown" in ended["reason"] and ended["attempt"] == 1, ended
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        job = place.service.submit(spec_of({"name": f"127.0.0.1:{closed.getsockname()[1]}/x@sha256:{image.digest}"}, "sh"))
        ended = place.service.wait_end(job, "FAILED")
    assert "connection refused" in ended["reason"], ended
    assert any(event["kind"] == "host_fault" for event in place.service.json("events", job)["events"])
