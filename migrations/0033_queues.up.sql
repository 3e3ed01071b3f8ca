-- Settings of queues. A job may also name a queue without a row: it has the defaults of these columns. -1: no limit.
CREATE TABLE queue (
  name         text PRIMARY KEY,
  cohort       text NOT NULL DEFAULT '',      -- queues of one cohort lend slots to each other; '': none
  weight       integer NOT NULL DEFAULT 1,
  max_priority integer NOT NULL DEFAULT 1000000,
  cpu_quota    integer NOT NULL DEFAULT -1,   -- slots that its jobs may use
  cuda_quota   integer NOT NULL DEFAULT -1,
  cpu_borrow   integer NOT NULL DEFAULT -1,   -- slots of others of the cohort that they may use as well
  cuda_borrow  integer NOT NULL DEFAULT -1,
  cpu_lend     integer NOT NULL DEFAULT -1,   -- slots of the quota that others of the cohort may use
  cuda_lend    integer NOT NULL DEFAULT -1,
  cpu_user     integer NOT NULL DEFAULT -1,   -- slots that the jobs of one user may use
  cuda_user    integer NOT NULL DEFAULT -1,
  -- The mean of the slots that it used before average_time, in which older use counts less.
  cpu_average  double precision NOT NULL DEFAULT 0,
  cuda_average double precision NOT NULL DEFAULT 0,
  average_time timestamptz NOT NULL DEFAULT now(),
  create_time  timestamptz NOT NULL DEFAULT now(),
  CONSTRAINT queue_has_name CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$'),
  CONSTRAINT queue_has_cohort CHECK (cohort ~ '^([A-Za-z0-9][A-Za-z0-9._-]{0,62})?$'),
  CONSTRAINT queue_has_weight CHECK (weight BETWEEN 1 AND 1000),
  CONSTRAINT queue_has_max_priority CHECK (max_priority BETWEEN -1000000 AND 1000000),
  CONSTRAINT queue_has_limits CHECK (least(cpu_quota, cuda_quota, cpu_borrow, cuda_borrow, cpu_lend, cuda_lend,
                                           cpu_user, cuda_user) >= -1
                                     AND greatest(cpu_quota, cuda_quota, cpu_borrow, cuda_borrow, cpu_lend, cuda_lend,
                                                  cpu_user, cuda_user) <= 1000000),
  CONSTRAINT queue_has_average CHECK (cpu_average >= 0 AND cuda_average >= 0)
) WITH (fillfactor = 70);
