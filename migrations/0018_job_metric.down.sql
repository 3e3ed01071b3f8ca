ALTER TABLE metric_chunk DROP CONSTRAINT metric_chunk_job_has_metric,
  ADD CONSTRAINT metric_chunk_name_fkey FOREIGN KEY (name) REFERENCES metric_name NOT VALID;
DROP TABLE job_metric;
