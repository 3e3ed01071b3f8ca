"""What the Debian packages contain, as far as it can be judged without building them."""

import fnmatch
import os
import pathlib
import re
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("TRAINYARD_BUILD", ROOT / "build"))
DEBIAN = ROOT / "deploy" / "debian"


def entries(name):
    return [line.split()[0] for line in (DEBIAN / name).read_text().splitlines() if line and not line.startswith("#")]


@pytest.mark.skipif(BUILD.name in ("asan", "tsan"), reason="builds with sanitizers are not installed")
def test_each_installed_file_is_in_one_package(tmp_path):
    subprocess.run(["cmake", "--install", BUILD, "--prefix", tmp_path / "usr"], check=True, stdout=subprocess.DEVNULL, timeout=300)
    lists = {path.name: entries(path.name) for path in DEBIAN.glob("*.install")} | {"not-installed": entries("not-installed")}
    for path in tmp_path.rglob("*"):
        if not path.is_dir():
            name = str(path.relative_to(tmp_path))
            owners = [owner for owner, patterns in lists.items() if any(fnmatch.fnmatch(name, p) or name.startswith(p + "/") for p in patterns)]
            assert len(owners) == 1, f"{name} is in {owners}: deploy/debian/*.install name the package of each file"


def test_the_package_for_gpus_has_the_plugin_alone_where_the_programs_look_for_it():
    """kernels/plugin.c loads ../lib/libtrainyard_cuda.so beside the program."""
    assert entries("trainyard-cuda.install") == ["usr/lib/libtrainyard_cuda.so"]
    assert {"usr/bin/trainyard-worker", "usr/bin/trainyard-train"} <= {*entries("trainyard-executor.install"), *entries("trainyard.install")}


def test_the_package_for_gpus_requires_nothing_that_debian_lacks():
    """A host may have NVIDIA's libraries as wheels, and its driver from NVIDIA's installer, beside which no package of the driver
    may come."""
    stanza = (DEBIAN / "control").read_text().split("Package: trainyard-cuda\n")[1]
    fields = dict(re.findall(r"^([A-Z][\w-]*): ((?:.*\n(?: +\S.*\n)*))", stanza, re.M))
    assert fields["Depends"].split(", ")[1:] == ["${misc:Depends}", "${shlibs:Depends}\n"]
    assert fields["Depends"].startswith("trainyard (= ${binary:Version}), "), "a plugin of another build is refused"
    major = re.search(r"nvidia-cuda-nvrtc==(\d+)\.(\d+)", (ROOT / "dev").read_text())
    assert f"libcublas-{major[1]}-{major[2]}" in fields["Recommends"] and "libnccl2" in fields["Recommends"]
    assert (DEBIAN / "shlibs.local").read_text() == f"libcublasLt {major[1]}\n", "else a build machine's package is required"
    assert "driver" not in fields["Recommends"] and "libcuda1" not in fields["Recommends"]


def test_a_package_build_asks_for_each_library_that_setup_installs():
    control = (DEBIAN / "control").read_text()
    installed = subprocess.check_output([ROOT / "dev", "packages"], text=True).split()
    # Tests, sanitizers and OpenMP of clang are for the build folder alone. libjpeg's package has a name in each system.
    other = ("libcmocka-dev", "libomp-", "libclang-rt-", "libjpeg")
    missing = [name for name in installed if name.startswith("lib") and name.endswith("-dev") and not name.startswith(other)
               and f" {name}" not in control]
    assert not missing, f"deploy/debian/control: Build-Depends lacks {missing}"
