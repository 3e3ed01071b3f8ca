"""What every bench ends with: a table on stdout and the same rows, with the machine, as build/bench/NAME.json."""

import json
import os
import pathlib
import platform

ROOT = pathlib.Path(__file__).resolve().parent.parent
BIN = pathlib.Path(os.environ.get("TRAINYARD_BIN", ROOT / "build" / "bin"))


def machine():
    model = next((line.split(":", 1)[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name")), "?")
    return {"cpu": model, "cores": os.cpu_count(), "kernel": platform.release(),
            "memory_gib": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30)}


def report(name, rows, notes=()):
    """rows: dicts with the same keys; printed as a table."""
    out = ROOT / "build" / "bench" / f"{name}.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"bench": name, "machine": machine(), "rows": rows, "notes": list(notes)}, indent=1) + "\n")
    columns = list(dict.fromkeys(k for row in rows for k in row))
    cells = [[("" if row.get(c) is None else f"{row[c]:.4g}" if isinstance(row[c], float) else str(row[c])) for c in columns]
             for row in rows]
    widths = [max(len(c), *(len(line[i]) for line in cells)) for i, c in enumerate(columns)]
    print("  ".join(c.ljust(w) for c, w in zip(columns, widths)))
    for line in cells:
        print("  ".join(c.ljust(w) for c, w in zip(line, widths)))
    for note in notes:
        print(note)
    print(f"({out.relative_to(ROOT)})")


def percentile(values, q):
    values = sorted(values)
    return values[min(len(values) - 1, int(q * len(values)))]
