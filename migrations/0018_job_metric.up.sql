-- No writer of an older controller may add a metric between the reading of all metrics and the new key.
LOCK TABLE metric_chunk IN SHARE ROW EXCLUSIVE MODE;

-- The metrics of each job. Programs choose the names of their metrics, so that the database may have many names. The
-- writer reads those of one job, and a name that no job has any more is deleted (service/store/job_delete.c).

CREATE TABLE job_metric (
  job  bigint NOT NULL REFERENCES job ON DELETE CASCADE,
  name integer NOT NULL REFERENCES metric_name,
  PRIMARY KEY (job, name)
);
-- Whether any job has the name.
CREATE INDEX job_metric_name ON job_metric (name);

-- One index search for each metric of a job, however long the job is.
INSERT INTO job_metric
  WITH RECURSIVE used (job, name) AS (
    SELECT j.id, (SELECT k.name FROM metric_chunk k WHERE k.job = j.id ORDER BY k.name LIMIT 1) FROM job j
    UNION ALL
    SELECT u.job, (SELECT k.name FROM metric_chunk k WHERE k.job = u.job AND k.name > u.name ORDER BY k.name LIMIT 1)
      FROM used u WHERE u.name IS NOT NULL
  )
  SELECT job, name FROM used WHERE name IS NOT NULL;

-- The deletion of a name would search all chunks for the old key. NOT VALID: the rows above have a row for each chunk,
-- and to check every chunk would take minutes.
ALTER TABLE metric_chunk DROP CONSTRAINT metric_chunk_name_fkey,
  ADD CONSTRAINT metric_chunk_job_has_metric FOREIGN KEY (job, name) REFERENCES job_metric NOT VALID;
