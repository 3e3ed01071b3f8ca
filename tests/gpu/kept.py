"""What tests/gpu/run has found, on disk: a file of each mode, and all of bench/gpu as one archive, for a host whose checkout is replaced
between runs."""

import json
import os
import pathlib
import tarfile

import host

ARCHIVE = None  # the path of the archive; None: there is none


def state_of(mode):
    return host.REPORTS / f"{mode}.json"


def load(path):
    """The rows of a file by their names; none of a file that is missing or damaged."""
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError):
        return {}


def read(mode):
    """What was found before: a row for each part, with its commit."""
    return load(state_of(mode))


def write(mode, rows):
    host.REPORTS.mkdir(parents=True, exist_ok=True)
    host.replace(state_of(mode), json.dumps(rows, indent=1))


def archive():
    """Writes the archive anew. A program that is killed leaves the old one or the new one."""
    if not ARCHIVE:
        return
    new = ARCHIVE.with_name(ARCHIVE.name + ".new")
    with tarfile.open(new, "w:gz") as file:
        file.add(host.REPORTS, arcname="gpu")
    os.replace(new, ARCHIVE)


def unarchive():
    """Takes from the archive what is newer than the reports that are here: of a file of rows, row by row."""
    if not ARCHIVE or not ARCHIVE.exists():
        return
    host.REPORTS.mkdir(parents=True, exist_ok=True)
    with tarfile.open(ARCHIVE) as file:
        for member in file.getmembers():
            if member.isfile():
                take(file.extractfile(member).read(), member.mtime, host.REPORTS / pathlib.Path(member.name).name)


def take(found, at, here):
    rows = rows_of(found)
    if rows:
        ours = load(here)
        newer = {name: row for name, row in rows.items() if row["at"] > ours.get(name, {}).get("at", 0)}
        host.replace(here, json.dumps({**ours, **newer}, indent=1))
    elif not here.exists() or here.stat().st_mtime < at:
        here.write_bytes(found)


def rows_of(text):
    """The rows of one of the files that load reads; {}: it is another file."""
    try:
        rows = json.loads(text)
    except ValueError:
        return {}
    timed = isinstance(rows, dict) and all(isinstance(row, dict) and "at" in row for row in rows.values())
    return rows if timed else {}
