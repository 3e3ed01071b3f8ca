"""Images on a host with GPUs: what their command gets of the host's driver. The driver and the device files are stand-ins, in a
namespace of mounts of the executor."""

import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest

from service_fixture import SANDBOX
from test_program_image import ImagePlace, events_of

HERE = pathlib.Path(__file__).resolve().parent / "devices"
NAMES = ["libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler"]
VERSION = "550.54.14"

# As of a host with two GPUs: device files that are /dev/null. $1: a folder of the test's own.
DEVICES = r"""
set -e
mount -t tmpfs none "$1/dev"
for name in null zero full random urandom tty ptmx pts shm mqueue; do
    test -e /dev/$name || continue
    if test -d /dev/$name; then mkdir "$1/dev/$name"; else touch "$1/dev/$name"; fi
    mount --rbind /dev/$name "$1/dev/$name"
done
mkdir "$1/dev/nvidia-caps" "$1/dev/infiniband"
for name in nvidia0 nvidia1 nvidiactl nvidia-uvm nvidia-caps/nvidia-cap1 infiniband/uverbs0; do
    touch "$1/dev/$name" && mount --bind /dev/null "$1/dev/$name"
done
ln -s /proc/self/fd "$1/dev/fd"
mount --rbind "$1/dev" /dev
mount -t tmpfs none /run
mkdir /run/cdi
"""
RUN = '\nshift; exec "$@"\n'

SEES = """
import ctypes, json, os, subprocess
def loads(name):
    try:
        return ctypes.CDLL(name).stand_in()
    except OSError as e:
        return str(e)
def opens(name):
    try:
        os.close(os.open("/dev/" + name, os.O_RDWR))
        return True
    except OSError as e:
        return str(e)
try:
    smi = subprocess.run(["nvidia-smi"], capture_output=True, text=True).stdout.strip()
except OSError as e:
    smi = str(e)
lib = "/.trainyard/lib"
try:
    os.close(os.open(lib + "/libcuda.so.1", os.O_WRONLY))
    written = "written"
except OSError as e:
    written = "refused"
print(json.dumps({"loaded": [loads(n) for n in ("libcuda.so.1", "libnvidia-ml.so.1", "libnvidia-ptxjitcompiler.so.1")],
                  "names": sorted(os.listdir(lib)) if os.path.isdir(lib) else [], "smi": smi, "written": written,
                  "devices": [opens(n) for n in ("nvidiactl", "nvidia0", "nvidia-uvm", "nvidia-caps/nvidia-cap1", "infiniband/uverbs0")],
                  "path": os.environ.get("LD_LIBRARY_PATH", ""), "search": os.environ["PATH"]}))
"""


def compiled(path, soname, value):
    subprocess.run(["cc", "-shared", "-fPIC", f"-Wl,-soname,{soname}", "-x", "c", "-", "-o", path], check=True, text=True,
                   input=f"int stand_in(void) {{ return {value}; }}\n")


def make_driver(folder, value=550):
    """As a distribution has it: a file with the version in its name, and links."""
    (folder / "bin").mkdir(parents=True)
    for name in NAMES:
        compiled(folder / f"{name}.so.{VERSION}", f"{name}.so.1", value)
        (folder / f"{name}.so.1").symlink_to(f"{name}.so.{VERSION}")
    (folder / "libcuda.so").symlink_to("libcuda.so.1")
    (folder / "libtext.so.1").write_text("no library")
    (folder / "bin" / "nvidia-smi").write_text("#!/bin/sh\necho smi of the host\n")
    (folder / "bin" / "nvidia-smi").chmod(0o755)
    return folder


SPEC = """---
cdiVersion: 0.5.0
kind: nvidia.com/gpu
devices:
- name: "0"
  containerEdits:
    deviceNodes:
    - path: /dev/nvidia0
- name: all
  containerEdits:
    mounts:
    - {hostPath: DRIVER/libnvidia-ptxjitcompiler.so.VERSION, containerPath: /usr/lib/x, options: [ro, nosuid, nodev, bind]}
containerEdits:
  env:
  - NVIDIA_VISIBLE_DEVICES=void
  deviceNodes:
  - path: /dev/nvidiactl
  hooks:
  - hookName: createContainer
    path: /usr/bin/nvidia-ctk
    args: [nvidia-ctk, hook, update-ldcache, --folder, DRIVER]
  mounts:
  - hostPath: DRIVER/libcuda.so.VERSION
    containerPath: DRIVER/libcuda.so.VERSION
    options:
    - ro
    - bind
  - hostPath: DRIVER/libnvidia-ml.so.VERSION
  - hostPath: DRIVER/libtext.so.1
  - hostPath: DRIVER/bin/nvidia-smi
  - hostPath: DRIVER/absent.so
"""
JSON = {"cdiVersion": "0.5.0", "kind": "nvidia.com/gpu", "devices": [], "containerEdits": {"mounts": [
    {"hostPath": f"DRIVER/{name}"} for name in (*(f"{name}.so.VERSION" for name in NAMES), "bin/nvidia-smi")]}}


class GpuPlace(ImagePlace):
    """setup: lines of shell for the executor's namespace; $1 is self.given, with `driver` in it."""

    def __init__(self, setup="", options=()):
        self.given = pathlib.Path(tempfile.mkdtemp(prefix="ty-gpus-", dir="/var/tmp"))
        (self.given / "dev").mkdir()
        driver = make_driver(self.given / "driver")
        for name, text in (("spec.yaml", SPEC), ("spec.json", json.dumps(JSON))):  # as nvidia-ctk writes them
            (self.given / name).write_text(text.replace("DRIVER", str(driver)).replace("VERSION", VERSION))
        nvml = self.given / "nvml"
        nvml.mkdir()
        subprocess.run(["cc", "-shared", "-fPIC", "-O1", "-o", nvml / "libnvidia-ml.so.1", HERE / "nvml.c"], check=True)
        (self.given / "script").write_text("")
        own = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
        super().__init__("--sandbox", SANDBOX, "--worker", HERE / "worker.py", *options, wrapper=[
            "unshare", "--mount", *own, "sh", "-c", DEVICES + setup + RUN, "sh", self.given, "env", f"LD_LIBRARY_PATH={nvml}",
            f"FAKE_NVML={self.given / 'script'}", f"FAKE_NVML_HOST=image-{os.getpid()}-{self.given.name}"])

    def close(self):
        super().close()
        shutil.rmtree(self.given)

    def sees(self, **program):
        """What the command sees, and the events about its libraries."""
        path = self.folder / "gpu.json"
        path.write_text(json.dumps({"name": "gpu", "resources": {"accelerator": "cuda"}, "program": {
            "command": ["python3", "-c", SEES], "image": {"root": str(self.root)}, **program}}))
        job = self.service.cli("submit", path, "--wait-for-hosts").stdout.strip()
        self.service.wait_end(job)
        return json.loads(self.lines(job)[0]), events_of(self, job, "gpu_libraries")


@contextlib.contextmanager
def gpu_place(*arguments):
    own = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    if subprocess.run(["unshare", "--mount", *own, "true"], stderr=subprocess.DEVNULL).returncode != 0:
        pytest.skip("this system makes no namespace of mounts")
    made = GpuPlace(*arguments)
    try:
        no_images = [line for line in made.log().splitlines() if "no_images" in line]
        if no_images:
            pytest.skip("this host cannot run images: " + no_images[0])
        yield made
    finally:
        made.close()


@pytest.fixture
def place(request):
    with gpu_place(*request.param) as made:
        yield made


USUAL = """
library=/usr/lib/$(uname -m)-linux-gnu
mount -t overlay -o "lowerdir=$1/driver:$library" overlay $library
mount -t overlay -o "lowerdir=$1/driver/bin:/usr/bin" overlay /usr/bin
"""


def expect_driver(found):
    assert found["loaded"] == [550] * 3
    assert found["names"] == sorted(["libcuda.so"] + [f"{name}.so.{end}" for name in NAMES for end in ("1", VERSION)])
    assert found["smi"] == "smi of the host" and found["written"] == "refused"
    assert found["devices"] == [True] * 5
    assert found["path"].split(":")[0] == "/.trainyard/lib" and found["search"].endswith(":/.trainyard/bin")


@pytest.mark.parametrize("place", [[USUAL]], indirect=True)
def test_an_image_gets_the_driver_from_a_usual_folder(place):
    found, events = place.sees(environment={"LD_LIBRARY_PATH": "/opt/image/lib"})
    expect_driver(found)
    assert events == [] and found["path"] == "/.trainyard/lib:/opt/image/lib"


@pytest.mark.parametrize("place", [[f'cp "$1/spec.{form}" /run/cdi/\n'] for form in ("yaml", "json")], indirect=True)
def test_an_image_gets_what_a_cdi_spec_names(place):
    found, events = place.sees()
    expect_driver(found)
    assert events == [] and found["path"] == "/.trainyard/lib"


@pytest.mark.parametrize("place", [['echo "kind: [" > /run/cdi/nvidia.yaml\n' + USUAL]], indirect=True)
def test_a_broken_cdi_spec_is_reported_and_the_usual_folder_counts(place):
    found, events = place.sees()
    expect_driver(found)
    assert len(events) == 1 and "'/var/run/cdi/nvidia.yaml' is not used: line" in events[0]


@pytest.mark.parametrize("place", [[""]], indirect=True)
def test_a_host_without_the_drivers_library_says_so(place):
    if any(pathlib.Path(folder, "libcuda.so.1").exists() for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib")):
        pytest.skip("this host has NVIDIA's driver")
    found, events = place.sees()
    assert "libcuda.so.1" in found["loaded"][0] and found["names"] == []
    assert events == ["the image gets no libraries of NVIDIA's driver: the host has no libcuda.so.1 in the folders of --library-path, in a "
                      "CDI spec, or in a usual folder"]


def test_the_folders_of_library_path_come_first():
    """Of such a folder only the driver's files are in the image, not other libraries of the host."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        own = make_driver(pathlib.Path(folder) / "own", 560)
        compiled(own / "libother.so.1", "libother.so.1", 1)
        with gpu_place(USUAL, ["--library-path", own]) as made:
            found, events = made.sees()
            assert found["loaded"] == [560] * 3 and found["path"] == "/.trainyard/lib" and events == []
            assert not any("other" in name for name in found["names"])
