-- Jobs are listed and found by their names. Several jobs may have one name; the newest comes first.
CREATE INDEX job_by_name ON job (name, id);
