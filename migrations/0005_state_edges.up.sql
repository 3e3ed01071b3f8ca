-- The allowed changes of states; all others are refused. For jobs this repeats the scheduler's table
-- (service/scheduler/job_state.c) for all causes together. For the other entities this is the only table.

CREATE TABLE state_edge (
  entity   text NOT NULL CHECK (entity IN ('job', 'attempt', 'checkpoint', 'executor')),
  at       smallint NOT NULL,
  becomes  smallint NOT NULL,
  PRIMARY KEY (entity, at, becomes)
);

INSERT INTO state_edge VALUES
  -- 1 QUEUED, 2 STARTING, 3 RUNNING, 4 RESTARTING, 5 PREEMPTING, 6 PAUSING, 7 PAUSED, 8 CANCELLING, 9 SUCCEEDED,
  -- 10 FAILED, 11 CANCELLED
  ('job', 1, 2), ('job', 1, 11),
  ('job', 2, 3), ('job', 2, 4), ('job', 2, 8), ('job', 2, 10),
  ('job', 3, 4), ('job', 3, 5), ('job', 3, 6), ('job', 3, 8), ('job', 3, 9), ('job', 3, 10),
  ('job', 4, 1), ('job', 4, 2), ('job', 4, 8), ('job', 4, 10),
  ('job', 5, 1), ('job', 5, 8),
  ('job', 6, 7), ('job', 6, 8),
  ('job', 7, 1), ('job', 7, 8),
  ('job', 8, 11),
  ('job', 10, 1),
  -- 1 STARTING, 2 RUNNING, 3 ENDING, 4 ENDED
  ('attempt', 1, 2), ('attempt', 1, 3), ('attempt', 1, 4),
  ('attempt', 2, 3), ('attempt', 2, 4),
  ('attempt', 3, 4),
  -- 1 WRITING, 2 COMMITTED, 3 CORRUPT, 4 DELETING, 5 DELETED
  ('checkpoint', 1, 2), ('checkpoint', 1, 4),
  ('checkpoint', 2, 3), ('checkpoint', 2, 4),
  ('checkpoint', 4, 5),
  -- 1 ATTACHED, 2 LOST
  ('executor', 1, 2), ('executor', 2, 1);

-- After the CHECKs, whose errors say more about what is wrong with a row.
CREATE FUNCTION state_guard() RETURNS trigger LANGUAGE plpgsql AS $guard$
BEGIN
  IF NOT EXISTS (SELECT 1 FROM state_edge WHERE entity = TG_TABLE_NAME AND at = OLD.state AND becomes = NEW.state) THEN
    RAISE EXCEPTION '% in state % may not become %', TG_TABLE_NAME, OLD.state, NEW.state
      USING ERRCODE = 'check_violation', CONSTRAINT = 'state_edge_' || TG_TABLE_NAME;
  END IF;
  RETURN NULL;
END
$guard$;

CREATE TRIGGER state_guard AFTER UPDATE OF state ON job FOR EACH ROW WHEN (OLD.state <> NEW.state)
  EXECUTE FUNCTION state_guard();
CREATE TRIGGER state_guard AFTER UPDATE OF state ON attempt FOR EACH ROW WHEN (OLD.state <> NEW.state)
  EXECUTE FUNCTION state_guard();
CREATE TRIGGER state_guard AFTER UPDATE OF state ON checkpoint FOR EACH ROW WHEN (OLD.state <> NEW.state)
  EXECUTE FUNCTION state_guard();
CREATE TRIGGER state_guard AFTER UPDATE OF state ON executor FOR EACH ROW WHEN (OLD.state <> NEW.state)
  EXECUTE FUNCTION state_guard();
