DELETE FROM state_edge WHERE entity = 'checkpoint' AND at = 3 AND becomes = 4;
DROP INDEX attempt_from, job_ended, job_deleting;
ALTER TABLE job DROP COLUMN delete_time;
