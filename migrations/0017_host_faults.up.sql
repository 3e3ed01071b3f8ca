-- Faults of hosts: the hosts that a job avoids, the last job that an executor failed, and checkpoints whose files could
-- not be read. CORRUPT: the bytes do not match. MISSING: no host could read the files for too long.

CREATE TABLE job_avoided_host (
  job      bigint NOT NULL REFERENCES job ON DELETE CASCADE,
  executor text NOT NULL,
  cause    smallint NOT NULL, -- trainyard.v1.WorkerEnd.Cause
  reason   text NOT NULL,
  time     timestamptz NOT NULL DEFAULT now(),
  PRIMARY KEY (job, executor),
  CONSTRAINT job_avoided_host_has_reason CHECK (reason <> '')
);

-- The last job that the executor failed, and the number of such jobs with less than ten minutes between two of them.
ALTER TABLE executor
  ADD COLUMN fault_time   timestamptz,
  ADD COLUMN fault_job    bigint,
  ADD COLUMN fault_jobs   integer NOT NULL DEFAULT 0,
  ADD COLUMN fault_reason text NOT NULL DEFAULT '',
  ADD CONSTRAINT executor_fault_is_whole CHECK ((fault_time IS NULL) = (fault_job IS NULL)
    AND (fault_time IS NULL) = (fault_jobs = 0) AND (fault_time IS NULL) = (fault_reason = ''));

ALTER TABLE checkpoint
  ADD COLUMN unreadable_time timestamptz, -- since when no host can read it
  DROP CONSTRAINT checkpoint_state_check,
  DROP CONSTRAINT checkpoint_committed_has_time,
  DROP CONSTRAINT checkpoint_corrupt_has_reason,
  DROP CONSTRAINT checkpoint_deleted_has_time,
  ADD CONSTRAINT checkpoint_state_check CHECK (state BETWEEN 1 AND 6),
  ADD CONSTRAINT checkpoint_committed_has_time CHECK (state NOT IN (2, 3, 6) OR commit_time IS NOT NULL),
  ADD CONSTRAINT checkpoint_corrupt_has_reason CHECK ((state NOT IN (3, 6) AND unreadable_time IS NULL) OR reason <> ''),
  ADD CONSTRAINT checkpoint_deleted_has_time CHECK ((state IN (4, 5)) = (delete_time IS NOT NULL)),
  ADD CONSTRAINT checkpoint_missing_is_unreadable CHECK (state <> 6 OR unreadable_time IS NOT NULL);
CREATE INDEX checkpoint_unreadable ON checkpoint (job) WHERE unreadable_time IS NOT NULL;

-- 6 MISSING: from COMMITTED; it becomes COMMITTED or CORRUPT again when its files are read, or is deleted. A CORRUPT
-- one whose bytes match when they are read again (a faulty cable was replaced) becomes COMMITTED.
INSERT INTO state_edge VALUES ('checkpoint', 2, 6), ('checkpoint', 6, 2), ('checkpoint', 6, 3), ('checkpoint', 6, 4),
  ('checkpoint', 3, 2);
