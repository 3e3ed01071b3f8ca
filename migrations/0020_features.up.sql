-- The features that the agents of a job's executors must have, as a sum: service/scheduler/feature.h.
ALTER TABLE job ADD COLUMN needs integer NOT NULL DEFAULT 0;
ALTER TABLE job ADD CONSTRAINT job_needs_features CHECK (needs >= 0);
UPDATE job SET needs = 1 FROM job_code WHERE job_code.job = job.id;
