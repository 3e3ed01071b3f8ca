"""Claims about what the numerics id says of the kernels' sources."""

import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]
BUILD = pathlib.Path(os.environ.get("TRAINYARD_BUILD", ROOT / "build"))


def digest(root, *files):
    subprocess.run(["cmake", f"-DROOT={root}", f"-DFILES={';'.join(files)}", "-DNAME=SOURCES", f"-DOUT={root / 'out.h'}",
                    "-P", ROOT / "cmake" / "digest.cmake"], check=True)
    return re.fullmatch(r'#define SOURCES "([0-9a-f]{12})"\n', (root / "out.h").read_text())[1]


def test_any_change_of_a_source_or_its_name_changes_the_digest(tmp_path):
    (tmp_path / "a.c").write_text("int a;\n")
    (tmp_path / "b.cu").write_text("int b;\n")
    seen = [digest(tmp_path, "a.c"), digest(tmp_path, "a.c", "b.cu")]
    assert digest(tmp_path, "a.c", "b.cu") == seen[1]
    (tmp_path / "b.cu").write_text("int b; \n")
    seen.append(digest(tmp_path, "a.c", "b.cu"))
    (tmp_path / "b.cu").rename(tmp_path / "c.cu")
    seen.append(digest(tmp_path, "a.c", "c.cu"))
    assert len(set(seen)) == 4


def test_every_source_of_the_kernels_is_in_the_digest_with_what_adds_between_ranks():
    command = next(line for line in (BUILD / "build.ninja").read_text().splitlines() if "digest.cmake" in line and "-DFILES=" in line)
    for file in ["kernels/kernels.c", "kernels/cpu/vector/norm.c", "kernels/cuda/norm.cu", "kernels/cuda/CMakeLists.txt",
                 "engine/collective/exchange.c", "engine/collective/nccl_accumulate.cu"]:
        assert file in command
