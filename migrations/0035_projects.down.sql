-- The version before would let a token of a project call everything that its role allows.
UPDATE token SET revoke_time = greatest(now(), create_time) WHERE project <> '' AND revoke_time IS NULL;
ALTER TABLE token DROP COLUMN project;
DROP INDEX job_by_project;
ALTER TABLE job DROP COLUMN project;
