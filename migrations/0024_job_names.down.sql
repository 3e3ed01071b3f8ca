DROP INDEX job_by_name;
