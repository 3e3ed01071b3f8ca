"""The store beside PostgreSQL's own pgbench: points/s into committed rows, durable CreateJob, downsampling.

A throw-away cluster with PostgreSQL's defaults of durability (fsync, synchronous_commit, full_page_writes), shown below.
"""

import contextlib
import glob
import json
import os
import pathlib
import pwd
import shutil
import subprocess
import tempfile
import time

import store_create
from report import BIN, report

SECONDS = float(os.environ.get("TRAINYARD_BENCH_SECONDS", "5"))

@contextlib.contextmanager
def cluster():
    programs = pathlib.Path(sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1])
    place = pathlib.Path(tempfile.mkdtemp(prefix="ty-bench-pg-"))
    as_server = {}
    if os.geteuid() == 0:
        user = pwd.getpwnam("postgres")
        os.chown(place, user.pw_uid, user.pw_gid)
        as_server = {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    run = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": place, **as_server}
    subprocess.run([programs / "initdb", "-D", place / "data", "-U", "postgres", "-A", "trust", "-E", "UTF8",
                    "--locale=C"], check=True, **run)
    server = subprocess.Popen([programs / "postgres", "-D", place / "data", "-c", f"unix_socket_directories={place}", "-c",
                               "listen_addresses=", "-c", "shared_buffers=256MB", "-c", "max_wal_size=4GB"], **run)
    try:
        while subprocess.run([programs / "pg_isready", "-q", "-h", place]).returncode != 0:
            time.sleep(0.05)
        yield place, programs
    finally:
        server.terminate()
        server.wait()
        shutil.rmtree(place, ignore_errors=True)


def sql(place, programs, database, text):
    return subprocess.run([programs / "psql", "-XAtq", "-h", place, "-U", "postgres", "-d", database, "-c", text],
                          check=True, capture_output=True, text=True).stdout.strip()


def bench(place, programs, *arguments):
    """bench_store on a database of its own."""
    database = f"bench{time.monotonic_ns()}"
    sql(place, programs, "postgres", f"CREATE DATABASE {database}")
    out = subprocess.run([BIN / "bench_store", f"host={place} user=postgres dbname={database}", *map(str, arguments)],
                         check=True, capture_output=True, text=True).stdout
    return json.loads(out), database


def pgbench(place, programs, database):
    script = place / "create.sql"
    script.write_text(store_create.SQL)
    out = subprocess.run([programs / "pgbench", "-n", "-M", "prepared", "-h", place, "-U", "postgres", "-c", "8", "-j", "2",
                          "-T", str(max(1, round(SECONDS))), "-f", script, database],
                         check=True, capture_output=True, text=True).stdout
    return float(next(line.split("=")[1].split()[0] for line in out.splitlines() if line.startswith("tps")))


def main():
    rows = []
    with cluster() as (place, programs):
        durable = ", ".join(f"{name}={sql(place, programs, 'postgres', 'SHOW ' + name)}"
                            for name in ("fsync", "synchronous_commit", "full_page_writes"))
        for ranks, steps in ((2, 1000), (8, 250), (64, 10)):
            got, _ = bench(place, programs, "ingest", ranks, steps, SECONDS)
            rows.append({"what": f"ingest, {ranks} ranks x {steps} steps x 8 metrics a write", "ours": got["points_per_second"],
                         "unit": "points/s", "goal": 500000, "ratio": got["points_per_second"] / 500000})
        got, _ = bench(place, programs, "ingest", 10000, 1, SECONDS)
        rows.append({"what": "ingest, 10,000 ranks of one writer x 1 step x 8 metrics: steps a second", "ours":
                     got["rows_of_a_rank_per_second"], "unit": f"1/s, {got['resident_mib']} MiB"})
        got, database = bench(place, programs, "create", 8, SECONDS)
        peer = pgbench(place, programs, database)
        rows.append({"what": "CreateJob in the store, 8 callers", "ours": got["per_second"], "unit": "jobs/s",
                     "peer": peer, "ratio": got["per_second"] / peer})
        got, _ = bench(place, programs, "downsample", 100000, 1000, 50)
        rows.append({"what": "100k points to 1,000", "ours": got["p50_ms"], "unit": "ms, p50", "goal": 20,
                     "ratio": 20 / got["p50_ms"]})
    report("store", rows, [f"peer: pgbench -M prepared -c 8 -j 2 with the same inserts; {durable}",
                           "ratio: above 1 is better than the goal or the peer"])


main()
