-- Jobs are listed by user, by label, and by the times of their start and end.

ALTER TABLE job ADD COLUMN user_name text NOT NULL DEFAULT ''; -- who submitted it; '': an older version did not record it
CREATE INDEX job_by_user ON job (user_name, id);
CREATE INDEX job_by_start ON job (start_time, id) WHERE start_time IS NOT NULL;
CREATE INDEX job_by_end ON job (end_time, id) WHERE end_time IS NOT NULL;

-- The labels of a job's spec.
CREATE TABLE job_label (
  job   bigint NOT NULL REFERENCES job ON DELETE CASCADE,
  key   text NOT NULL,
  value text NOT NULL,
  PRIMARY KEY (job, key)
);
CREATE INDEX job_by_label ON job_label (key, value, job);

-- Labels of existing jobs. A spec is a packed message: a sequence of fields, each a tag (number * 8 + wire type) and a
-- value. Labels are field 11, of bytes: messages with the key in field 1 and the value in field 2.
CREATE FUNCTION pg_temp.read_varint(body bytea, INOUT place integer, OUT number bigint) LANGUAGE plpgsql AS $$
DECLARE
  byte integer;
  shift integer := 0;
BEGIN
  number := 0;
  LOOP
    byte := get_byte(body, place);
    place := place + 1;
    IF shift < 63 THEN
      number := number | ((byte & 127)::bigint << shift);
    END IF;
    shift := shift + 7;
    EXIT WHEN byte < 128;
  END LOOP;
END $$;
-- The values of the fields of bytes, in their order.
CREATE FUNCTION pg_temp.read_fields(body bytea) RETURNS TABLE (field bigint, bytes bytea) LANGUAGE plpgsql AS $$
DECLARE
  place integer := 0;
  tag bigint;
  size bigint;
BEGIN
  WHILE place < length(body) LOOP
    SELECT r.place, r.number INTO place, tag FROM pg_temp.read_varint(body, place) r;
    CASE tag & 7
      WHEN 0 THEN SELECT r.place INTO place FROM pg_temp.read_varint(body, place) r;
      WHEN 1 THEN place := place + 8;
      WHEN 2 THEN
        SELECT r.place, r.number INTO place, size FROM pg_temp.read_varint(body, place) r;
        field := tag >> 3;
        bytes := substring(body FROM place + 1 FOR size::integer);
        place := place + size::integer;
        RETURN NEXT;
      WHEN 5 THEN place := place + 4;
    END CASE;
  END LOOP;
END $$;
INSERT INTO job_label (job, key, value)
  SELECT s.job, convert_from(k.bytes, 'UTF8'), coalesce(convert_from(v.bytes, 'UTF8'), '')
    FROM job_spec s
    CROSS JOIN LATERAL pg_temp.read_fields(s.body) l
    JOIN LATERAL pg_temp.read_fields(l.bytes) k ON k.field = 1
    LEFT JOIN LATERAL pg_temp.read_fields(l.bytes) v ON v.field = 2
    WHERE l.field = 11
  ON CONFLICT DO NOTHING;
DROP FUNCTION pg_temp.read_fields(bytea);
DROP FUNCTION pg_temp.read_varint(bytea, integer);
