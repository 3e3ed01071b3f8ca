"""The scheduler alone, without a database: each event and each placing with 10,000 executors and 100,000 waiting jobs, and the
15,000 jobs of Kueue's performance test."""

import subprocess

from report import BIN, report

EXECUTORS, JOBS = 10_000, 100_000


def lines_of(*arguments):
    return subprocess.run([BIN / "bench_scheduler", *map(str, arguments)], check=True, text=True,
                          capture_output=True).stdout.splitlines()


def main():
    rows = []
    for line in lines_of(EXECUTORS, JOBS):
        what, n, median, p99, longest = line.split("\t")
        rows.append({"event": what, "number": int(n), "p50 ms": float(median), "p99 ms": float(p99),
                     "longest ms": float(longest)})
    report("scheduler", rows, [f"{EXECUTORS} executors with 8 cpu and 8 cuda slots each, {JOBS} waiting jobs of both kinds "
                               "with 1 to 1,024 ranks and ten priorities. Processor time of the scheduler's thread.",
                               "The jobs of Kueue's performance test: " +
                               "; ".join(line.replace("\t", " ") for line in lines_of("kueue"))])


main()
