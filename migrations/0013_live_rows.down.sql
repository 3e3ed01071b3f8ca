DROP INDEX placement_live, job_live, executor_live;
