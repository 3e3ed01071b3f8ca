"""store_job_create's inserts as pgbench sends them: one prepared statement, its own transaction."""

SQL = """
\\set n random(1, 1000000000)
\\set k random(1, 1000000000)
WITH l AS (SELECT 1 FROM leader WHERE epoch > 0 FOR SHARE),
j AS (INSERT INTO job (name, queue, state, priority, world_size, accelerator, max_restarts, steps, keep_last, keep_best)
      SELECT 'bench', 'default', 1, 0, 2, 'cpu', 3, 1000, 3, 0 FROM l RETURNING id),
s AS (INSERT INTO job_spec (job, body) SELECT id, convert_to(repeat('x', 600), 'UTF8') FROM j),
e AS (INSERT INTO event (job, number, attempt, kind, state, message, request_id)
      SELECT id, 1, 0, 'state_changed', 1, '', 'pgbench-' || :n || '-' || :k FROM j)
SELECT id FROM j;
"""
