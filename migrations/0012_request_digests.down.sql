ALTER TABLE job_spec DROP COLUMN request_digest;
