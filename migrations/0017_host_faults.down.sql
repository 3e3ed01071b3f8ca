UPDATE checkpoint SET state = 2 WHERE state = 6;
DELETE FROM state_edge WHERE entity = 'checkpoint' AND (at, becomes) IN ((2, 6), (6, 2), (6, 3), (6, 4), (3, 2));
DROP INDEX checkpoint_unreadable;
ALTER TABLE checkpoint
  DROP CONSTRAINT checkpoint_missing_is_unreadable,
  DROP CONSTRAINT checkpoint_state_check,
  DROP CONSTRAINT checkpoint_committed_has_time,
  DROP CONSTRAINT checkpoint_corrupt_has_reason,
  DROP CONSTRAINT checkpoint_deleted_has_time,
  ADD CONSTRAINT checkpoint_state_check CHECK (state BETWEEN 1 AND 5),
  ADD CONSTRAINT checkpoint_committed_has_time CHECK (state NOT IN (2, 3) OR commit_time IS NOT NULL),
  ADD CONSTRAINT checkpoint_corrupt_has_reason CHECK (state <> 3 OR reason <> ''),
  ADD CONSTRAINT checkpoint_deleted_has_time CHECK ((state >= 4) = (delete_time IS NOT NULL)),
  DROP COLUMN unreadable_time;
ALTER TABLE executor DROP CONSTRAINT executor_fault_is_whole, DROP COLUMN fault_time, DROP COLUMN fault_job,
  DROP COLUMN fault_jobs, DROP COLUMN fault_reason;
DROP TABLE job_avoided_host;
