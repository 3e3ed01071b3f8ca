"""The manual pages: one for each program and command, with all that --help says, and none that `man` complains about."""

import re
import shutil
import subprocess
import sys

import pytest

from service_fixture import BIN, PATIENCE, ROOT

PROGRAMS = ["trainyard", "trainyard-train", "trainyard-controller", "trainyard-executor", "trainyard-worker", "trainyard-program", "trainyard-code",
            "trainyard-environment", "trainyard-data"]


def generated(folder):
    subprocess.run([sys.executable, ROOT / "cmake" / "man.py", "1.2.3", folder, *[BIN / program for program in PROGRAMS]], check=True,
                   timeout=120 * PATIENCE)
    return folder


def help_of(program, *arguments):
    return subprocess.run([BIN / program, *arguments], check=True, capture_output=True, text=True, timeout=60 * PATIENCE).stdout


def words_of(text):
    return {word.strip(":.") for word in re.findall(r"[\w./=@:-]+", text.lower())}


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """{file: its help text}, and the folder."""
    texts = {f"{program}.{8 if program not in ('trainyard', 'trainyard-train') else 1}": help_of(program, "--help") for program in PROGRAMS}
    commands = re.findall(r"^  ([a-z]+) ", texts["trainyard.1"].partition("Commands\n")[2].partition("\n\n")[0], re.M)
    assert len(commands) > 30
    texts.update({f"trainyard-{command}.1": help_of("trainyard", "help", command) for command in commands if command not in ("help", "version")})
    return texts, generated(tmp_path_factory.mktemp("man"))


def test_each_program_and_command_has_a_page(pages):
    texts, folder = pages
    assert {path.name for path in folder.iterdir()} == set(texts)


@pytest.mark.skipif(not shutil.which("man"), reason="no man on this machine")
def test_a_page_says_all_that_help_says_and_man_finds_no_fault(pages):
    texts, folder = pages
    for name, text in texts.items():
        done = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", folder / name], capture_output=True, text=True,
                              env={"MANWIDTH": "1000", "LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin", "MAN_KEEP_FORMATTING": ""}, timeout=60 * PATIENCE)
        assert done.returncode == 0 and not done.stderr, (name, done.stderr)
        shown = done.stdout.replace("\u2010", "-")
        words = words_of(shown) | {"usage", "example"}
        missing = [word for word in sorted(words_of(text)) if word not in words]
        assert not missing, (name, missing)
        for title in ("NAME", "SYNOPSIS", "DESCRIPTION", "SEE ALSO"):
            assert re.search(rf"^{title}$", shown, re.M), (name, title)


def test_help_of_a_command_fits_a_terminal_and_says_what_a_job_is(pages):
    texts, _ = pages
    for name in texts:
        if name in ("trainyard.1", "trainyard-train.1") or name.endswith(".8"):
            continue
        before_examples = texts[name].partition("\nExample\n")[0]
        assert all(len(line) <= 100 for line in before_examples.splitlines()), name
        assert ("JOB is the number of a job" in texts[name]) == bool(re.match(r"trainyard [a-z]+ JOB", texts[name])), name
        assert texts[name].count("\nExample\n") == 1 and "\n\n\n" not in texts[name], name


def test_pages_are_the_same_bytes_each_time(pages, tmp_path):
    _, folder = pages
    again = generated(tmp_path / "again")
    assert all((again / path.name).read_bytes() == path.read_bytes() for path in folder.iterdir())
