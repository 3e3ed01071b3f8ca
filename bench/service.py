"""The service's own figures: submit to first step, durable CreateJob beside pgbench on the same inserts, one and ten thousand
attached executors with both streams, and an agent's memory."""

import glob
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import time

import store_create
from report import BIN, percentile, report
from service_fixture import Service

TICKS = os.sysconf("SC_CLK_TCK")


def memory_mib(pid, key="VmRSS"):
    for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) / 1024
    return None


def cpu_s(pid):
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def run(program, *arguments):
    return subprocess.run([BIN / program, *map(str, arguments)], check=True, text=True, capture_output=True).stdout


def text(directory):
    path = directory / "text.txt"
    path.write_text("".join(f"line {i} of a text that is long enough to draw windows from\n" for i in range(5000)))
    return path


def latency(service, path, times=40):
    lines = [list(map(float, line.split())) for line in run("bench_latency", service.address, path, times).splitlines()]
    rows = []
    for i, (what, goal) in enumerate([("submit → workers started", 20), ("submit → RUNNING", 150),
                                      ("submit → first step", 500)]):
        values = [line[i] for line in lines[2:]]
        rows.append({"figure": what, "p50 ms": percentile(values, 0.5), "p99 ms": percentile(values, 0.99), "goal ms": goal,
                     "peer": "Slurm, tuned, same kind of machine: 1000 ms to start" if i == 0 else ""})
    return rows


def agent(service):
    pid = service.pid_of("trainyard-executor")
    return [{"figure": "agent memory", "MiB": memory_mib(pid), "goal MiB": 20}]


def attached(service, n=1000, seconds=12):
    pid = service.pid_of("trainyard-controller")
    before = memory_mib(pid)
    bench = subprocess.Popen([BIN / "bench_attach", service.address, str(n), str(seconds)], stdout=subprocess.PIPE, text=True)
    said = bench.stdout.readline().strip()
    start, used = time.monotonic(), cpu_s(pid)
    time.sleep(seconds - 3)
    share = (cpu_s(pid) - used) / (time.monotonic() - start)
    after = memory_mib(pid)
    bench.wait()
    return [{"figure": f"{n} executors: {said}", "MiB": after, "MiB before": before, "CPU at rest %": 100 * share}]


def create(service, path, seconds=6):
    """bench_create and pgbench with the same inserts take turns on the service's own PostgreSQL."""
    rates, peers, p50s, p99s = [], [], [], []
    pgbench = sorted(glob.glob("/usr/lib/postgresql/*/bin/pgbench"))[-1]
    script = path.with_suffix(".sql")
    script.write_text(store_create.SQL)
    sockets = os.path.dirname(service.address.removeprefix("unix:")) + "-pg"
    for _ in range(3):
        rate, p50, p99 = map(float, run("bench_create", service.address, path, 8, seconds).split())
        said = subprocess.run([pgbench, "-h", sockets, "-U", "trainyard", "-n", "-M", "prepared", "-c", "8", "-j", "2", "-T",
                               str(seconds), "-f", script, "postgres"], check=True, text=True, capture_output=True).stdout
        rates.append(rate), p50s.append(p50), p99s.append(p99)
        peers.append(float(re.search(r"tps = ([0-9.]+)", said).group(1)))
    return {"figure": "durable CreateJob, 8 callers", "p50 ms": percentile(p50s, 0.5), "p99 ms": percentile(p99s, 0.5),
            "per s": percentile(rates, 0.5), "goal per s": 2000, "peer": "pgbench -c 8 -j 2, the same inserts, per s",
            "peer's": percentile(peers, 0.5), "ratio": percentile(rates, 0.5) / percentile(peers, 0.5), "goal ratio": 0.5}


def on_a_service(measure):
    """The rows of measure(service, text) on a service of its own: what one figure leaves behind would be in the next."""
    directory = pathlib.Path(tempfile.mkdtemp(prefix="trainyard-bench-"))
    (directory / "service").mkdir()
    service = Service(directory / "service").start()
    try:
        return measure(service, text(directory))
    finally:
        service.stop()
        shutil.rmtree(directory, ignore_errors=True)


def main():
    rows = on_a_service(lambda service, path: latency(service, path) + agent(service))
    for n in 1000, 10000:
        rows += on_a_service(lambda service, path: attached(service, n))
    rows += on_a_service(lambda service, path: [create(service, path)])
    report("service", rows)


main()
