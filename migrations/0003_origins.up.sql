-- Jobs that begin with a checkpoint of another job: with its whole state (a fork), or only with its weights.

CREATE TABLE job_origin (
  job          bigint PRIMARY KEY REFERENCES job ON DELETE CASCADE,
  checkpoint   bigint NOT NULL REFERENCES checkpoint,
  weights_only boolean NOT NULL
);
CREATE INDEX job_origin_of ON job_origin (checkpoint);
