-- Sweeps and their trials. A trial's row is inserted by the transaction that creates its job, so that no trial has two
-- jobs.

CREATE TABLE sweep (
  id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name           text NOT NULL UNIQUE,
  state          smallint NOT NULL,
  reason         text NOT NULL DEFAULT '',
  spec           bytea NOT NULL,                      -- the resolved SweepSpec
  request_id     text NOT NULL UNIQUE,                -- of the call that created it
  request_digest bytea NOT NULL,
  user_name      text NOT NULL,                       -- who created it, and submits its jobs
  maximize       boolean NOT NULL,                    -- a higher metric is better
  trials         integer NOT NULL,
  created        integer NOT NULL DEFAULT 0,          -- the trials 1 to this number have a row
  ended          integer NOT NULL DEFAULT 0,
  succeeded      integer NOT NULL DEFAULT 0,
  failed         integer NOT NULL DEFAULT 0,
  best           integer,                             -- of the trials that SUCCEEDED, the one with the best metric
  best_metric    double precision,
  create_time    timestamptz NOT NULL DEFAULT now(),
  end_time       timestamptz,
  CONSTRAINT sweep_has_name CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,56}$'),
  -- 1 RUNNING, 2 CANCELLING, 3 SUCCEEDED, 4 FAILED, 5 CANCELLED
  CONSTRAINT sweep_has_state CHECK (state BETWEEN 1 AND 5),
  CONSTRAINT sweep_ended_has_time CHECK ((state >= 3) = (end_time IS NOT NULL)),
  CONSTRAINT sweep_counts_trials CHECK (trials BETWEEN 1 AND 10000 AND created BETWEEN 0 AND trials
                                        AND ended BETWEEN 0 AND created AND succeeded >= 0 AND failed >= 0
                                        AND succeeded + failed <= ended),
  CONSTRAINT sweep_ended_has_no_open_trial CHECK (state < 3 OR ended = created),
  CONSTRAINT sweep_best_has_metric CHECK ((best IS NULL) = (best_metric IS NULL))
) WITH (fillfactor = 70);
CREATE INDEX sweep_open ON sweep (id) WHERE state < 3;

CREATE TABLE sweep_trial (
  sweep  bigint NOT NULL REFERENCES sweep ON DELETE CASCADE,
  number integer NOT NULL,
  job    bigint REFERENCES job ON DELETE SET NULL,    -- NULL: the job was deleted
  -- The job's final state, step, reason and metric, which stay when the job is deleted. NULL: it has not ended, or the
  -- controller has not taken its end yet.
  state  smallint,
  step   bigint NOT NULL DEFAULT 0,
  reason text NOT NULL DEFAULT '',
  metric double precision,
  PRIMARY KEY (sweep, number),
  CONSTRAINT sweep_trial_has_number CHECK (number BETWEEN 1 AND 10000),
  CONSTRAINT sweep_trial_has_final_state CHECK (state BETWEEN 9 AND 11)
) WITH (fillfactor = 70);
CREATE INDEX sweep_trial_open ON sweep_trial (sweep, number) WHERE state IS NULL;
CREATE INDEX sweep_trial_by_job ON sweep_trial (job);

ALTER TABLE state_edge DROP CONSTRAINT state_edge_entity_check;
ALTER TABLE state_edge ADD CONSTRAINT state_edge_entity_check
  CHECK (entity IN ('job', 'attempt', 'checkpoint', 'executor', 'sweep'));
INSERT INTO state_edge VALUES
  ('sweep', 1, 2), ('sweep', 1, 3), ('sweep', 1, 4), ('sweep', 2, 4), ('sweep', 2, 5);
CREATE TRIGGER state_guard AFTER UPDATE OF state ON sweep FOR EACH ROW WHEN (OLD.state <> NEW.state)
  EXECUTE FUNCTION state_guard();
