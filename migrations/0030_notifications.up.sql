-- Notifications: events of jobs, executors and devices that receivers outside of the service must learn of. A row of
-- `notification` is written in the transaction of its event and deleted when it was delivered, so that a crash loses none.

-- The leader writes its configuration here, so that events without a receiver leave no rows.
CREATE TABLE notification_target (
  name   text PRIMARY KEY CHECK (name ~ '^[a-z0-9][a-z0-9._-]{0,62}$'),
  states integer[] NOT NULL, -- a job that reaches one of these states
  kinds  text[] NOT NULL     -- events of these kinds
);

CREATE TABLE notification (
  id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  target   text NOT NULL REFERENCES notification_target ON DELETE CASCADE,
  delivery uuid NOT NULL DEFAULT gen_random_uuid(), -- the same in each try
  time     timestamptz NOT NULL,
  kind     text NOT NULL,     -- of the event
  job      bigint,            -- of a job's event, with the members up to attempt; no reference: jobs are deleted
  job_name text,
  state    smallint,
  attempt  integer,
  executor text,              -- of an event of an executor or device
  message  text NOT NULL,
  tries    integer NOT NULL DEFAULT 0 CHECK (tries >= 0)
);
CREATE INDEX notification_by_target ON notification (target, id);

-- A target is locked while an event writes its notification: an event that meets the deletion of a target waits for it and
-- skips the target, instead of a failure of the foreign key, which would fail the write of the event too.
CREATE FUNCTION event_notifies() RETURNS trigger LANGUAGE plpgsql AS $notifies$
BEGIN
  INSERT INTO notification (target, time, kind, job, job_name, state, attempt, message)
  SELECT t.name, NEW.time, NEW.kind, NEW.job, j.name, NEW.state, NEW.attempt, NEW.message
    FROM notification_target t JOIN job j ON j.id = NEW.job
   WHERE NEW.kind = ANY (t.kinds) OR NEW.kind = 'state_changed' AND NEW.state = ANY (t.states)
     FOR KEY SHARE OF t;
  RETURN NULL;
END
$notifies$;
-- A controller without targets does not set the parameter, and its events cost no call of the function.
CREATE TRIGGER event_notifies AFTER INSERT ON event FOR EACH ROW
  WHEN (current_setting('trainyard.notifies', true) = 'on') EXECUTE FUNCTION event_notifies();

CREATE FUNCTION executor_lost_notifies() RETURNS trigger LANGUAGE plpgsql AS $notifies$
BEGIN
  INSERT INTO notification (target, time, kind, executor, message)
  SELECT t.name, NEW.lost_time, 'executor_lost', NEW.id, 'host ' || NEW.hostname || ': ' || NEW.reason
    FROM notification_target t WHERE 'executor_lost' = ANY (t.kinds)
     FOR KEY SHARE OF t;
  RETURN NULL;
END
$notifies$;
CREATE TRIGGER executor_lost_notifies AFTER UPDATE OF state ON executor FOR EACH ROW
  WHEN (OLD.state = 1 AND NEW.state = 2) EXECUTE FUNCTION executor_lost_notifies();
