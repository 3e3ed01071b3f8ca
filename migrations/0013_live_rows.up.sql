-- A new leader reads only live rows, through indexes of only these rows: its start must not become slower with history.

-- Ranks whose end was never reported, such as those of a lost executor, stayed open after their attempt. From now on
-- they are closed with it (service/store/attempt.c). Here they are closed for attempts that have ended.
UPDATE placement p SET end_time = a.end_time, cause = 0, message = 'its end was not reported'
  FROM attempt a WHERE a.job = p.job AND a.number = p.attempt AND a.state = 4 AND p.end_time IS NULL;

CREATE INDEX placement_live ON placement (executor) WHERE end_time IS NULL;
CREATE INDEX job_live ON job (id) WHERE state < 9;
CREATE INDEX executor_live ON executor (id) WHERE state = 1 OR drain_time IS NOT NULL;
