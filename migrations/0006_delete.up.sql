-- Deletion of jobs: a job is marked, then its files are removed, then its rows, in batches.

ALTER TABLE job ADD COLUMN delete_time timestamptz,
  ADD CONSTRAINT job_deleted_has_ended CHECK (delete_time IS NULL OR state >= 9);
CREATE INDEX job_deleting ON job (id) WHERE delete_time IS NOT NULL;
CREATE INDEX job_ended ON job (end_time) WHERE end_time IS NOT NULL AND delete_time IS NULL;
-- A checkpoint's row cannot be deleted while an attempt refers to it. The index finds such attempts.
CREATE INDEX attempt_from ON attempt (from_checkpoint) WHERE from_checkpoint IS NOT NULL;

INSERT INTO state_edge VALUES ('checkpoint', 3, 4); -- CORRUPT -> DELETING
