"""What the parts of tests/gpu/run stand on: where things are, how a program is run, and what a part may end with.

TRAINYARD_GPU_DRY=1 is a dry run: every part on the CPU and tiny, to try the scripts where there is no GPU. It works and
reports in build/gpu-dry; a program that wants a device is skipped."""

import concurrent.futures
import ctypes
import functools
import glob
import hashlib
import json
import math
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
LIMIT_S = float(os.environ.get("TRAINYARD_GPU_SECONDS", 480))
EXCERPT, KEPT = 1500, 100_000  # characters of what a failed program said, from each end: in the report, and in failures.txt
LOOK_S = 60  # that a second look at a failed program may take
NO_DEVICE = 77  # the exit of a program that finds none
CASES = {"gpu_elements": 60, "gpu_rows": 60, "gpu_images": 60, "gpu_workspace": 150, "gpu_products": 150}  # s: cuDNN compiles
MODELS = ["test_gpt_pytorch", "test_models_pytorch"]
PROGRAMS = ["bin/trainyard-train", *(f"tests/{name}" for name in ["gpu_ranks", "gpu_layouts", "gpu_speed", *CASES, *MODELS])]
PLUGIN = "lib/libtrainyard_cuda.so"
BEGUN = time.monotonic()
PART_LIMIT_S, PART_NEEDS_S = 120, 30  # of a part that says nothing else
PART = {"ends": math.inf}


class Skip(Exception):
    pass


class Failed(Exception):
    """Tried again by the next run."""


class Late(Failed):
    """A program did not end in its time."""


class Cut(Exception):
    """The run is over: the part begins anew in the next one."""


class Missed(Exception):
    """A figure that is not what it should be: told as a failure, but not measured again."""


def left():
    """Seconds until this run has to end."""
    return LIMIT_S - (time.monotonic() - BEGUN)


def left_of_part():
    """Seconds until the part that is being done has to end."""
    return min(left(), PART["ends"] - time.monotonic())


def begin_part(limit_s):
    """From now on programs are ended when the part's time is over: a hang costs no more than that."""
    PART["ends"] = time.monotonic() + limit_s


def takes(needs_s, limit_s, part):
    """The part, which waits for the next run if fewer than needs_s seconds are left, and fails after limit_s."""
    part.needs_s, part.limit_s = needs_s, limit_s
    return part


def replace(path, text):
    """Writes a file at once: a program that is killed leaves the old one or the new one."""
    new = path.with_suffix(".new")
    new.write_text(text)
    os.replace(new, path)


def python():
    return os.environ.get("TRAINYARD_TORCH", sys.executable)


def wheel_folders():
    """Where the wheels of PyTorch keep CUDA's libraries."""
    sites = subprocess.run([python(), "-c", "import site; print('\\n'.join(site.getsitepackages()))"], capture_output=True,
                           text=True).stdout.split()
    return [f for s in sites for f in sorted(glob.glob(f"{s}/nvidia/*/lib"))]


@functools.lru_cache
def library_folders(ours):
    """For our programs the pack's, those of ./dev cuda and the toolkit's, too: Python has a C++ library of its own."""
    if not ours:
        return wheel_folders()
    return [str(PACK / "lib"), *sorted(glob.glob(str(ROOT / "build/cuda/nvidia/*/lib"))), *wheel_folders(),
            "/usr/local/cuda/lib64"]


def environment(ours=True, without=None, **more):
    """without: a library whose folder is left out."""
    folders = [f for f in library_folders(ours) if not without or f"/{without}/" not in f]
    old = os.environ.get("LD_LIBRARY_PATH")
    return dict(os.environ, LD_LIBRARY_PATH=":".join(folders + ([old] if old else [])), **more)


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

FAULTS = ("illegal", "misaligned", "launch failure", "invalid device function", "invalid argument", "no kernel image")


def execute(command, timeout, env=None, cwd=ROOT):
    """(status, output, errors); status None: it was late. Nothing that it starts outlives it: it is killed, with its children.
    timeout None: it may take as long as it does, beyond the end of the run, too."""
    wait_s = None if timeout is None else max(1, min(timeout, left_of_part()))
    process = subprocess.Popen(list(map(str, command)), cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                               text=True, errors="replace", process_group=0)
    status, out, errors = None, "", ""
    try:
        out, errors = process.communicate(timeout=wait_s)
        status = process.returncode
    except subprocess.TimeoutExpired:
        pass
    finally:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        process.wait()
    if status is None:
        try:
            out, errors = process.communicate(timeout=10)  # what it had said
        except subprocess.TimeoutExpired:
            pass
    return status, out, errors


def ends(text, most):
    """The first failure stands at the beginning, the last words at the end."""
    text = text.strip()
    return text if len(text) <= 2 * most else f"{text[:most]}\n[...]\n{text[-most:]}"


def keep(what, out, errors):
    """In failures.txt, beside the reports: most of what a failed program said."""
    REPORTS.mkdir(parents=True, exist_ok=True)
    with open(REPORTS / "failures.txt", "a", encoding="utf-8") as file:
        file.write(f"\n######## {what}\n{ends(errors, KEPT)}\n######## its output\n{ends(out, KEPT)}\n")


def run(command, timeout=120, **more):
    """Its output; a status other than 0 fails the part. more: `without` and variables of its environment."""
    return finish(command, timeout, **more)[0]


def finish(command, timeout=120, cwd=ROOT, **more):
    """As run, with what it wrote to stderr: (output, errors)."""
    env, begun = environment(str(command[0]) != python(), **more), time.monotonic()
    status, out, errors = execute(command, timeout, env, cwd)
    if status == NO_DEVICE and DRY:
        raise Skip("a dry run has no device")
    if status == 0:
        return out, errors
    if status is None and left() < 1:
        raise Cut
    given = [f"{name}={value}" for name, value in more.items() if not name.startswith("NCCL_")]
    how = f"not done after {time.monotonic() - begun:.0f} s" if status is None else f"exit {status}"
    what = f"{' '.join(map(str, [*given, *command]))}: {how}"
    keep(what, out, errors)
    kind = Late if status is None else Failed
    raise kind(f"{what}\n{ends(errors, EXCERPT)}\n{ends(out, EXCERPT)}\n{looked_into(command, env, out + errors)}".strip())


def looked_into(command, env, said):
    """What compute-sanitizer finds where the device has refused: the kernel, and what it did."""
    path = sanitizer()
    if DRY or not path or "sanitizer" in str(command[0]) or not any(fault in said for fault in FAULTS) or left() < 2 * LOOK_S:
        return ""
    prefix = [path, "--tool", "memcheck", "--print-limit", "5"]
    status, out, errors = execute([*prefix, *command], LOOK_S, env)
    keep("the same under memcheck", out, errors)
    return f"under memcheck:\n{ends(out + errors, EXCERPT)}"


def run_each(commands, **more):
    """The output of each (seconds that it may take, command). One that fails keeps none of the others from its turn, but where it
    hangs: they might, too."""
    said, failed = [], []
    for timeout, command in commands:
        try:
            said.append(run(command, timeout, **more))
        except Failed as x:
            failed.append(str(x))
            if isinstance(x, Late):
                break
    if failed:
        raise Failed("\n\n".join(failed))
    return said


def run_together(commands, **more):
    """The output of each (seconds that it may take, command), all at once: they share the device, and each its own processor."""
    with concurrent.futures.ThreadPoolExecutor(len(commands)) as pool:
        running = [pool.submit(run, command, timeout, **more) for timeout, command in commands]
    failed = [x.exception() for x in running if x.exception()]
    for kind in (Skip, Cut):
        for x in failed:
            if isinstance(x, kind):
                raise x
    if failed:
        raise Failed("\n\n".join(str(x) for x in failed))
    return [x.result() for x in running]


def sanitizer():
    return shutil.which("compute-sanitizer", path=os.environ.get("PATH", "") + ":/usr/local/cuda/bin")


@functools.lru_cache
def commit():
    """The pack's, where one is used; else the checkout's."""
    of_pack = unpack()
    if of_pack:
        return (of_pack / "commit").read_text()
    return checkout() or "unknown"


def git(*words):
    """What it says; "": nothing, or there is no git, or this is no checkout."""
    if not shutil.which("git"):
        return ""
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else ""


def checkout():
    """The commit, and whether it is all that is here; "": this is none. Reports may change."""
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


def digest_of(path):
    return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() else ""


def sources():
    """Digests of what a checkout has: of that a pack is made, and beside that it is run."""
    names = git("ls-files", "--", ".", ":!bench/gpu", ":!*.md").splitlines()
    return {name: digest_of(ROOT / name) for name in names}


@functools.lru_cache
def build():
    """The folder with bin/, lib/ and tests/: the pack's, or one made here."""
    of_pack = unpack()
    if not of_pack:
        return make(LIMIT_S)
    packed = json.loads((of_pack / "sources.json").read_text())
    others = [name for name, digest in packed.items() if digest_of(ROOT / name) != digest]
    if others:
        raise Failed(f"{ARCHIVE.name} is of {commit()}, with another {others[0]} than is here: pack again, or remove it")
    return of_pack


def make(seconds):
    """The folder, built; Cut: not yet, and the next run goes on with it. seconds None: however long it takes. What the build takes is
    not taken from the part's time."""
    begun, ends = time.monotonic(), PART["ends"]
    PART["ends"] = math.inf
    try:
        return built(seconds)
    finally:
        PART["ends"] = ends + time.monotonic() - begun


def built(seconds):
    made = ROOT / "build" / "gpu" / "build"
    if not shutil.which("cmake"):
        raise Skip(f"no build/gpu/{ARCHIVE.name}, and no cmake to build with")
    for command in (["cmake", "--preset", "engine", "-B", made, "-DTRAINYARD_CUDA=ON"],
                    ["cmake", "--build", made, "--target", "gpu_programs"]):
        status, out, errors = execute(command, seconds)
        if status is None:
            raise Cut
        if status != 0:
            raise Failed(f"{command[1]}: {(out + errors)[-2000:]}")
    return made


def text():
    """Tinyshakespeare: what TRAINYARD_TEXT names, or what the pack has of it."""
    named = os.environ.get("TRAINYARD_TEXT")
    path = pathlib.Path(named) if named else (unpack() or PACK) / "text"
    if not path.exists():
        raise Skip("TRAINYARD_TEXT names no tinyshakespeare.txt (1.1 MB of text, not part of this project), and no pack has it")
    return path.resolve()


@functools.lru_cache
def torch_version():
    """None: there is no PyTorch."""
    try:
        found = subprocess.run([python(), "-c", "from importlib.metadata import version; print(version('torch'))"],
                               capture_output=True, text=True)
    except OSError as x:
        raise Skip(f"no Python at {python()}: {x}") from x
    return found.stdout.strip() if found.returncode == 0 else None


def has_torch():
    """Skips where there is no PyTorch."""
    if not torch_version():
        raise Skip(f"{python()} has no PyTorch")


def peer(*words, timeout=240):
    """PyTorch's part of the work: the last line that peer.py prints."""
    def part():
        has_torch()
        return run([python(), ROOT / "tests/gpu/peer.py", *words], timeout).strip().splitlines()[-1]
    return part
