DROP TABLE job_label;
DROP INDEX job_by_start, job_by_end;
ALTER TABLE job DROP COLUMN user_name;
