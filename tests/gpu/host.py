"""What the parts of tests/gpu/run stand on: where things are, how a program is run, and what a part may end with."""

import ctypes
import glob
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
WORK = ROOT / "build" / "gpu"
PACK = WORK / "pack"
ARCHIVE = WORK / "pack.tar.xz"
REPORTS = ROOT / "bench" / "gpu"
LIMIT_S = 480
CASES = ["gpu_elements", "gpu_rows", "gpu_images", "gpu_products", "gpu_workspace"]
PROGRAMS = ["bin/trainyard-train", "tests/gpu_ranks", "tests/gpu_speed", *(f"tests/{name}" for name in CASES)]
BEGUN = time.monotonic()


class Skip(Exception):
    pass


class Failed(Exception):
    pass


def left():
    """Seconds until this run has to end."""
    return LIMIT_S - (time.monotonic() - BEGUN)


def python():
    return os.environ.get("TRAINYARD_TORCH", sys.executable)


def library_folders():
    """Where the wheels of PyTorch keep CUDA's libraries, and the pack's own."""
    sites = subprocess.run([python(), "-c", "import site; print('\\n'.join(site.getsitepackages()))"], capture_output=True,
                           text=True).stdout.split()
    folders = [f for s in sites for f in sorted(glob.glob(f"{s}/nvidia/*/lib"))]
    return [str(PACK / "lib"), *sorted(glob.glob(str(ROOT / "build/cuda/nvidia/*/lib"))), *folders]


def environment(**more):
    old = os.environ.get("LD_LIBRARY_PATH")
    return dict(os.environ, LD_LIBRARY_PATH=":".join(library_folders() + ([old] if old else [])), **more)


def why_no_gpu():
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError as x:
        return f"no NVIDIA driver: {x}"
    count = ctypes.c_int()
    code = driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count))
    return f"the driver does not start (code {code})" if code else None if count.value else "the driver sees no GPU"


def build():
    """The folder with bin/, lib/ and tests/: the pack's, or one made here."""
    if not (PACK / "bin").exists() and ARCHIVE.exists():
        with tarfile.open(ARCHIVE) as archive:
            archive.extractall(PACK)
    if (PACK / "bin").exists():
        return PACK
    made = WORK / "build"
    if not shutil.which("cmake"):
        raise Skip(f"no {ARCHIVE.relative_to(ROOT)}, and no cmake to build with")
    for command in (["cmake", "--preset", "engine", "-B", made, "-DTRAINYARD_CUDA=ON"],
                    ["cmake", "--build", made, "--target", "gpu_programs"]):
        done = subprocess.run(list(map(str, command)), cwd=ROOT, capture_output=True, text=True)
        if done.returncode:
            raise Failed(f"{command[1]}: {(done.stdout + done.stderr)[-2000:]}")
    return made


def run(command, timeout=300, **more):
    """Its output; a status other than 0 fails the part."""
    done = subprocess.run(list(map(str, command)), env=environment(**more), capture_output=True, text=True,
                          timeout=max(1, min(timeout, left())))
    if done.returncode:
        raise Failed(f"{' '.join(map(str, command))}: exit {done.returncode}\n{(done.stdout + done.stderr)[-3000:]}")
    return done.stdout


def peer(name):
    def part():
        try:
            import_torch = subprocess.run([python(), "-c", "import torch"], capture_output=True, text=True)
        except OSError as x:
            raise Skip(f"no Python at {python()}: {x}") from x
        if import_torch.returncode:
            raise Skip(f"{python()} has no PyTorch")
        return run([python(), ROOT / "tests/gpu/peer.py", name], timeout=240).strip().splitlines()[-1]
    return part
