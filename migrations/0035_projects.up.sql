-- Jobs belong to projects. A token of a project is for the jobs of that project only. Jobs that exist already, and those
-- of tokens without a project, belong to the project 'default'.

ALTER TABLE job ADD COLUMN project text NOT NULL DEFAULT 'default';
CREATE INDEX job_by_project ON job (project, id);
ALTER TABLE token ADD COLUMN project text NOT NULL DEFAULT ''; -- '': for the whole cluster
ALTER TABLE token
  ADD CONSTRAINT token_has_project CHECK (project ~ '^([A-Za-z0-9][A-Za-z0-9._-]{0,62})?$'),
  ADD CONSTRAINT token_of_project_has_role CHECK (project = '' OR role IN (1, 2)); -- VIEWER, USER
