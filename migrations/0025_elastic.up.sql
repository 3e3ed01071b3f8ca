-- Elastic programs: an attempt has from world_size to max_world_size ranks.
ALTER TABLE job
  ADD COLUMN max_world_size integer, -- NULL: world_size
  ADD COLUMN stops_at_step boolean NOT NULL DEFAULT false,
  ADD CONSTRAINT job_max_world_size CHECK (max_world_size > world_size AND max_world_size <= 1024);
-- NULL: an attempt of an older version, with as many ranks as its job.
ALTER TABLE attempt
  ADD COLUMN world_size integer,
  ADD CONSTRAINT attempt_world_size CHECK (world_size BETWEEN 1 AND 1024);
