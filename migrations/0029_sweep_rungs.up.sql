-- Successive halving: the results of trials at the rungs of their sweep, and which trials were stopped there.

ALTER TABLE sweep ADD COLUMN stopped integer NOT NULL DEFAULT 0,   -- trials
  ADD CONSTRAINT sweep_counts_stopped_trials CHECK (stopped BETWEEN 0 AND created);
ALTER TABLE sweep_trial
  ADD COLUMN rungs smallint NOT NULL DEFAULT 0,                    -- the rungs 1 to this number have a result
  ADD COLUMN stop_step bigint,                                     -- of the result for which it was stopped
  ADD COLUMN stop_reason text NOT NULL DEFAULT '',
  ADD CONSTRAINT sweep_trial_counts_rungs CHECK (rungs BETWEEN 0 AND 64),
  ADD CONSTRAINT sweep_trial_stop_has_reason CHECK ((stop_step IS NULL) = (stop_reason = ''));

CREATE TABLE sweep_rung (
  sweep bigint NOT NULL,
  rung  smallint NOT NULL,
  trial integer NOT NULL,
  step  bigint NOT NULL,
  score double precision NOT NULL,                                 -- the metric; negated to maximize it. Lower is better
  PRIMARY KEY (sweep, rung, trial),
  FOREIGN KEY (sweep, trial) REFERENCES sweep_trial ON DELETE CASCADE,
  CONSTRAINT sweep_rung_has_number CHECK (rung BETWEEN 1 AND 64),
  CONSTRAINT sweep_rung_has_score CHECK (score <> 'NaN')
);
CREATE INDEX sweep_rung_by_trial ON sweep_rung (sweep, trial);
