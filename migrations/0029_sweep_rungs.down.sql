DROP TABLE sweep_rung;
ALTER TABLE sweep_trial DROP COLUMN rungs, DROP COLUMN stop_step, DROP COLUMN stop_reason;
ALTER TABLE sweep DROP COLUMN stopped;
