ALTER TABLE metric_chunk DROP COLUMN first_time, DROP COLUMN times;
