"""What the parts of tests/gpu/run stand on: where things are, how a program is run, and what a part may end with.

TRAINYARD_GPU_DRY=1 is a dry run: every part on the CPU and tiny, to try the scripts where there is no GPU. It works and
reports in build/gpu-dry; a program that wants a device is skipped."""

import ctypes
import functools
import glob
import hashlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tarfile
import time

DRY = os.environ.get("TRAINYARD_GPU_DRY") == "1"
DEVICE = "cpu" if DRY else "cuda"
ROOT = pathlib.Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / ("gpu-dry" if DRY else "gpu")
PACK = WORK / "pack"
ARCHIVE = ROOT / "build" / "gpu" / "pack.tar.xz"
REPORTS = WORK / "reports" if DRY else ROOT / "bench" / "gpu"
LIMIT_S = 480
NO_DEVICE = 77  # the exit of a program that finds none
CASES = ["gpu_elements", "gpu_rows", "gpu_images", "gpu_products", "gpu_workspace"]
MODELS = ["test_gpt_pytorch", "test_models_pytorch"]
PROGRAMS = ["bin/trainyard-train", *(f"tests/{name}" for name in ["gpu_ranks", "gpu_layouts", "gpu_speed", *CASES, *MODELS])]
PLUGIN = "lib/libtrainyard_cuda.so"
BEGUN = time.monotonic()


class Skip(Exception):
    pass


class Failed(Exception):
    """Tried again by the next run."""


class Missed(Exception):
    """A figure that is not what it should be: told as a failure, but not measured again."""


def left():
    """Seconds until this run has to end."""
    return LIMIT_S - (time.monotonic() - BEGUN)


def needs(seconds, part):
    """The part, which waits for the next run where less than so many seconds are left."""
    part.needs_s = seconds
    return part


def python():
    return os.environ.get("TRAINYARD_TORCH", sys.executable)


def wheel_folders():
    """Where the wheels of PyTorch keep CUDA's libraries."""
    sites = subprocess.run([python(), "-c", "import site; print('\\n'.join(site.getsitepackages()))"], capture_output=True,
                           text=True).stdout.split()
    return [f for s in sites for f in sorted(glob.glob(f"{s}/nvidia/*/lib"))]


@functools.lru_cache
def library_folders(ours):
    """For our programs the pack's and those of ./dev cuda, too: Python has a C++ library of its own."""
    own = [str(PACK / "lib"), *sorted(glob.glob(str(ROOT / "build/cuda/nvidia/*/lib")))] if ours else []
    return own + wheel_folders()


def environment(ours=True, **more):
    old = os.environ.get("LD_LIBRARY_PATH")
    return dict(os.environ, LD_LIBRARY_PATH=":".join(library_folders(ours) + ([old] if old else [])), **more)


def why_no_gpu():
    if DRY:
        return None
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as x:
        return f"no NVIDIA driver: {x}"
    count = ctypes.c_int()
    code = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    return f"the driver does not start (code {code})" if code else None if count.value else "the driver sees no GPU"


# ---- programs ----

def execute(command, timeout, env=None):
    """(status, output, errors). Nothing that it starts outlives it: what is late is killed, with its children."""
    process = subprocess.Popen(list(map(str, command)), cwd=ROOT, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, errors="replace", process_group=0)
    try:
        out, errors = process.communicate(timeout=max(1, min(timeout, left())))
    except subprocess.TimeoutExpired as x:
        raise Failed(f"{' '.join(map(str, command))}: not done after {x.timeout:.0f} s") from x
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
    return process.returncode, out, errors


def run(command, timeout=300, **more):
    """Its output; a status other than 0 fails the part."""
    status, out, errors = execute(command, timeout, environment(str(command[0]) != python(), **more))
    if status == NO_DEVICE and DRY:
        raise Skip("a dry run has no device")
    if status:
        raise Failed(f"{' '.join(map(str, command))}: exit {status}\n{(out + errors)[-3000:]}")
    return out


@functools.lru_cache
def commit():
    """The pack's, where one is used; else the checkout's."""
    of_pack = unpack()
    if of_pack:
        return (of_pack / "commit").read_text()
    return checkout() or "unknown"


def checkout():
    """The commit, and whether it is all that is here; "": this is none. Reports may change."""
    if not shutil.which("git"):
        return ""

    def git(*words):
        done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
        return done.stdout.strip() if done.returncode == 0 else ""
    changed = git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!bench/gpu")
    return git("rev-parse", "--short", "HEAD") + ("+changes" if changed else "")


def unpack():
    """The pack's folder; None: there is no pack."""
    if not ARCHIVE.exists():
        return None
    digest, stamp = hashlib.sha256(ARCHIVE.read_bytes()).hexdigest(), PACK / "digest"
    if not stamp.exists() or stamp.read_text() != digest:
        shutil.rmtree(PACK, ignore_errors=True)
        with tarfile.open(ARCHIVE) as archive:
            archive.extractall(PACK)
        stamp.write_text(digest)
    return PACK


@functools.lru_cache
def build():
    """The folder with bin/, lib/ and tests/: the pack's, or one made here."""
    of_pack = unpack()
    if of_pack:
        if checkout() not in ("", commit()):
            raise Failed(f"{ARCHIVE.name} is of {commit()}, this checkout {checkout()}: pack again, or remove it")
        return of_pack
    return make()


def make():
    made = ROOT / "build" / "gpu" / "build"
    if not shutil.which("cmake"):
        raise Skip(f"no build/gpu/{ARCHIVE.name}, and no cmake to build with")
    for command in (["cmake", "--preset", "engine", "-B", made, "-DTRAINYARD_CUDA=ON"],
                    ["cmake", "--build", made, "--target", "gpu_programs"]):
        status, out, errors = execute(command, LIMIT_S)
        if status:
            raise Failed(f"{command[1]}: {(out + errors)[-2000:]}")
    return made


def text():
    """Tinyshakespeare: what TRAINYARD_TEXT names, or what the pack has of it."""
    named = os.environ.get("TRAINYARD_TEXT")
    path = pathlib.Path(named) if named else PACK / "text"
    if not path.exists():
        raise Skip("TRAINYARD_TEXT names no tinyshakespeare.txt (1.1 MB of text, not part of this project), and no pack has it")
    return path.resolve()


def has_torch():
    """Skips where there is no PyTorch."""
    try:
        found = subprocess.run([python(), "-c", "import torch"], capture_output=True, text=True)
    except OSError as x:
        raise Skip(f"no Python at {python()}: {x}") from x
    if found.returncode:
        raise Skip(f"{python()} has no PyTorch")


def peer(*words, timeout=240):
    """PyTorch's part of the work: the last line that peer.py prints."""
    def part():
        has_torch()
        return run([python(), ROOT / "tests/gpu/peer.py", *words], timeout).strip().splitlines()[-1]
    return part
