"""Claims about what the numerics id says of the kernels' sources."""

import pathlib
import subprocess

SCRIPT = pathlib.Path(__file__).resolve().parents[2] / "cmake" / "digest.cmake"


def digest(folder, out):
    subprocess.run(["cmake", f"-DFOLDER={folder}", "-DNAME=SOURCES", f"-DOUT={out}", "-P", SCRIPT], check=True)
    return out.read_text()


def test_any_change_of_a_source_changes_the_digest_and_nothing_else_does(tmp_path):
    folder, out = tmp_path / "kernels", tmp_path / "sources.h"
    (folder / "cuda").mkdir(parents=True)
    (folder / "a.c").write_text("int a;\n")
    (folder / "cuda" / "b.cu").write_text("int b;\n")
    seen = [digest(folder, out)]
    assert seen[0].startswith('#define SOURCES "') and len(seen[0].split('"')[1]) == 12
    (folder / "README.md").write_text("not compiled")
    assert digest(folder, out) == seen[0]
    (folder / "cuda" / "b.cu").write_text("int b; \n")
    seen.append(digest(folder, out))
    (folder / "c.h").write_text("")
    seen.append(digest(folder, out))
    (folder / "c.h").rename(folder / "d.h")
    seen.append(digest(folder, out))
    assert len(set(seen)) == 4
