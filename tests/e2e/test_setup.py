"""What ./dev setup builds: the target `programs`."""

import os
import pathlib
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("TRAINYARD_BUILD", ROOT / "build"))
PLUGIN = "lib/libtrainyard_cuda.so"


def ninja(tool, *arguments):
    done = subprocess.run(["ninja", "-C", BUILD, "-t", tool, *arguments], check=True, capture_output=True, text=True)
    return done.stdout.splitlines()


def test_setup_makes_the_plugin_wherever_it_can_be_made():
    if not any(line.startswith(f"{PLUGIN}: ") for line in ninja("targets", "all")):
        pytest.skip("no nvcc: this build has no plugin")
    assert PLUGIN in [line.strip() for line in ninja("query", "programs")]
