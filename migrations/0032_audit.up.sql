-- The audit log: who called what that changes something, and which calls were refused. Its rows outlive what they are
-- about. They are never changed, and only audit_trim deletes them, by age.

CREATE TABLE audit (
  time        timestamptz NOT NULL,          -- of the end of the call, by the controller's clock
  entry       bigint NOT NULL,               -- drawn by the controller: a repeated write adds no second row
  caller      text NOT NULL,                 -- '': unknown
  address     text NOT NULL,                 -- of the caller: 'ipv4:10.0.0.7:41812', 'unix:'
  certificate text NOT NULL,                 -- the first name in the caller's certificate; '': none
  method      text NOT NULL,                 -- 'JobService.CancelJob'
  object      text NOT NULL,                 -- 'jobs/42'; '': the call was refused before its request was read
  job         bigint,                        -- of the object; no reference: jobs are deleted
  request_id  text NOT NULL,                 -- of the call, as in the access log
  result      text NOT NULL,                 -- the status: 'OK', 'PERMISSION_DENIED'
  message     text NOT NULL,                 -- of a failure
  unrecorded  bigint NOT NULL DEFAULT 0,     -- failed calls between this row and the last failure that have no row
  PRIMARY KEY (time, entry),
  CONSTRAINT audit_has_method CHECK (method ~ '^[A-Za-z0-9]+\.[A-Za-z0-9]+$'),
  CONSTRAINT audit_has_result CHECK (result ~ '^[A-Z_]+$'),
  CONSTRAINT audit_counts CHECK (unrecorded >= 0)
);
CREATE INDEX audit_by_caller ON audit (caller, time, entry);
CREATE INDEX audit_by_job ON audit (job, time, entry) WHERE job IS NOT NULL;
CREATE INDEX audit_failures ON audit (time, entry) WHERE result <> 'OK';

CREATE FUNCTION audit_refuse() RETURNS trigger LANGUAGE plpgsql AS $refuse$
BEGIN
  IF TG_OP = 'DELETE' AND current_setting('trainyard.trims_audit', true) = 'on' THEN
    IF OLD.time < now() - interval '1 day' THEN
      RETURN OLD;
    END IF;
  END IF;
  RAISE EXCEPTION 'the audit log is append-only: % is refused', TG_OP USING ERRCODE = 'restrict_violation';
END
$refuse$;
CREATE TRIGGER audit_is_append_only BEFORE UPDATE OR DELETE ON audit FOR EACH ROW EXECUTE FUNCTION audit_refuse();
CREATE TRIGGER audit_is_not_truncated BEFORE TRUNCATE ON audit FOR EACH STATEMENT EXECUTE FUNCTION audit_refuse();

-- Deletes at most so many of the rows that are older than keep_days, the oldest first. Returns their number.
CREATE FUNCTION audit_trim(keep_days integer, at_most integer) RETURNS bigint LANGUAGE plpgsql AS $trim$
DECLARE
  n bigint;
BEGIN
  PERFORM set_config('trainyard.trims_audit', 'on', true);
  DELETE FROM audit WHERE ctid = ANY (ARRAY(SELECT ctid FROM audit WHERE time < now() - keep_days * interval '1 day'
                                             ORDER BY time, entry LIMIT at_most));
  GET DIAGNOSTICS n = ROW_COUNT;
  PERFORM set_config('trainyard.trims_audit', 'off', true);
  RETURN n;
END
$trim$;
