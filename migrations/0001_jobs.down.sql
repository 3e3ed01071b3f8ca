DROP TABLE event, placement, attempt, job_spec, job, device, executor, leader;
