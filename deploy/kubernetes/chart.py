#!/usr/bin/env python3
"""Writes a Helm chart of the manifests in base/ to a new folder:

    deploy/kubernetes/chart.py FOLDER

A line `key: value # helm: a.b` of a manifest becomes `key: {{ .Values.a.b | toJson }}`, and `value` the default in
values.yaml. The namespace is that of the release.
"""

import pathlib
import re
import sys

BASE = pathlib.Path(__file__).resolve().parent / "base"
PROJECT = BASE.parents[2] / "CMakeLists.txt"
MANIFESTS = ("controller", "executors", "network", "storage")
MARK = re.compile(r"^(?P<key>\s*(?:- )?[\w./-]+: )(?P<value>.*\S)\s+# helm: (?P<name>[\w.]+)$")


def template(text, values):
    """The text with its marked values replaced. Adds their defaults to values."""
    lines = []
    for line in text.splitlines():
        mark = MARK.match(line)
        if mark:
            name, value = mark["name"], mark["value"]
            if values.setdefault(name, value) != value:
                sys.exit(f"chart.py: {name} has two defaults, {values[name]} and {value}")
            line = f"{mark['key']}{{{{ .Values.{name} | toJson }}}}"
        elif "# helm:" in line:
            sys.exit(f"chart.py: cannot read the mark of the line '{line}'")
        lines.append(line + "\n")
    return "".join(lines)


def values_text(values):
    """values.yaml: one section for each first part of a name."""
    lines, section = [], None
    for name, value in sorted(values.items()):
        first, second = name.split(".")
        if first != section:
            lines.append(f"{first}:\n")
            section = first
        lines.append(f"  {second}: {value}\n")
    return "".join(lines)


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__.strip())
    folder, values = pathlib.Path(sys.argv[1]), {}
    try:
        (folder / "templates").mkdir(parents=True)
    except FileExistsError:
        sys.exit(f"chart.py: {folder} has a chart already")
    for name in MANIFESTS:
        (folder / "templates" / f"{name}.yaml").write_text(template((BASE / f"{name}.yaml").read_text(), values))
    version = re.search(r"project\(trainyard VERSION ([\d.]+)", PROJECT.read_text())[1]
    (folder / "values.yaml").write_text(values_text(values))
    (folder / "Chart.yaml").write_text(
        f'apiVersion: v2\nname: trainyard\ndescription: Runs training jobs\nversion: {version}\nappVersion: "{version}"\n'
    )


if __name__ == "__main__":
    main()
