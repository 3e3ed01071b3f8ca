DROP TABLE job_origin;
