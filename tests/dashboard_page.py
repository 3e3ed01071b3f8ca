"""For tests and benchmarks of the web page: its server, scripts in a browser, and tables with much data."""

import http.client
import json
import os
import pathlib
import re
import select
import shutil
import signal
import subprocess

from service_fixture import BIN, PATIENCE, Database, descendants

CHROMIUM = shutil.which("chromium")
# A folder with playwright-core, axe-core and lighthouse, as `npm install playwright-core axe-core lighthouse` makes it.
NODE_MODULES = os.environ.get("TRAINYARD_NODE_MODULES")
SCRIPTS = pathlib.Path(__file__).resolve().parent / "e2e" / "dashboard"


def lacks(*modules):
    """Why a browser test cannot run; None: it can."""
    if not CHROMIUM or not shutil.which("node"):
        return "no chromium or no node on this machine"
    missing = [m for m in modules if not NODE_MODULES or not (pathlib.Path(NODE_MODULES) / m).is_dir()]
    return f"TRAINYARD_NODE_MODULES names no folder with {', '.join(missing)}" if missing else None


class Page:
    """The server of the page, and calls that the page makes."""

    def __init__(self, environment):
        self.process = subprocess.Popen([BIN / "trainyard", "dashboard", "--port", "0"], stdout=subprocess.PIPE,
                                        stderr=subprocess.PIPE, text=True, env=environment)
        ready, _, _ = select.select([self.process.stdout], [], [], 30 * PATIENCE)
        self.url = self.process.stdout.readline().strip() if ready else ""
        assert self.url.startswith("http://127.0.0.1:"), self.url
        self.port = int(self.url.split(":")[2].split("/")[0])
        self.key = self.url.partition("#key=")[2]

    def request(self, method, path, body=None, **headers):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60 * PATIENCE)
        headers = {name.replace("_", "-"): value for name, value in headers.items() if value is not None}
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        answer.text = answer.read().decode()
        connection.close()
        return answer

    def call(self, name, request=None, **headers):
        body = request if isinstance(request, str) else json.dumps(request or {})
        return self.request("POST", f"/api/{name}", body, **{"X_Trainyard_Key": self.key, **headers})

    def json(self, name, request=None):
        answer = self.call(name, request)
        assert answer.status == 200, answer.text
        return json.loads(answer.text)

    def start_script(self, name, folder, **given):
        argument = json.dumps({"url": self.url, "chromium": CHROMIUM, "folder": str(folder), **given})
        return subprocess.Popen(["node", SCRIPTS / f"{name}.mjs", argument], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True, env={**os.environ, "NODE_PATH": NODE_MODULES})

    def script(self, name, folder, **given):
        """The report of a script of tests/e2e/dashboard, which must have no errors and no requests to other hosts."""
        process = self.start_script(name, folder, **given)
        out, err = process.communicate(timeout=600 * PATIENCE)
        assert process.returncode == 0, out + err
        report = json.loads(out)
        assert report["errors"] == [] and report["foreign"] == [], report
        return report

    def stop(self):
        self.process.send_signal(signal.SIGINT)
        _, err = self.process.communicate(timeout=40 * PATIENCE)
        assert self.process.returncode == 0, err


class Filler(Database):
    """Fills the database of a running service. Jobs are copies of a job that has ended."""

    def __init__(self, service):
        line = next(line for line in descendants(service.up.pid).values() if "trainyard-controller --database" in line)
        self.cluster = re.search("host=[^ ]+ user=trainyard", line)[0]
        self.conninfo = f"{self.cluster} dbname=postgres"

    def jobs(self, template, n, name):
        """n jobs named name-1 to name-n, with the spec and the state of the template."""
        self.sql(f"""
            WITH added AS (
              INSERT INTO job (name, queue, state, priority, world_size, accelerator, max_restarts, attempt, steps, step, keep_last,
                               keep_best, start_time, end_time)
              SELECT '{name}-' || i, queue, state, priority, world_size, accelerator, max_restarts, 1, steps, 0, keep_last,
                     keep_best, start_time, end_time FROM job, generate_series(1, {n}) i WHERE id = {template} RETURNING id)
            INSERT INTO job_spec SELECT added.id, s.body FROM added, job_spec s WHERE s.job = {template}""")

    def points(self, job, chunks):
        """A loss of 240 * chunks points, ten milliseconds after each other."""
        self.sql(f"""
            DELETE FROM metric_chunk WHERE job = {job};
            INSERT INTO job_metric SELECT {job}, id FROM metric_name WHERE name = 'loss' ON CONFLICT DO NOTHING;
            INSERT INTO metric_chunk SELECT {job}, (SELECT id FROM metric_name WHERE name = 'loss'), 0, 1, k, 240, 1, k * 240 + 1,
              (k + 1) * 240, min(v), max(v), sum(v), array_agg(v ORDER BY i), NULL, now() - interval '1 day' + k * interval '2.4 s',
              decode('00' || repeat('14', 239), 'hex')
            FROM generate_series(0, {chunks} - 1) k, generate_series(0, 239) i,
              LATERAL (SELECT 2 + 6 * exp(-(k * 240 + i) / ({chunks} * 40.0)) + sin({job} * 7 + k * 240 + i) / 5 AS v) x GROUP BY k;
            UPDATE job SET step = {chunks} * 240 WHERE id = {job}""")

    def log(self, job, chunks):
        """A log of 1000 * chunks lines."""
        self.sql(f"""
            DELETE FROM log_chunk WHERE job = {job};
            INSERT INTO log_chunk SELECT {job}, k, 1, 0, array_agg(now() + (k * 1000 + i) * interval '1 ms' ORDER BY i),
              array_agg('stdout'::text ORDER BY i), array_agg('line ' || (k - 1) * 1000 + i || repeat(' text', 30) ORDER BY i), 200000
            FROM generate_series(1, {chunks}) k, generate_series(1, 1000) i GROUP BY k""")
