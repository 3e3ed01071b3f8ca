-- The time at which each point was reported. Older chunks have no times.

-- The milliseconds from one point to the next, as zigzag varints (service/store/metric_times.h): usually one or two
-- bytes for each point, so that a row and its next version still fit on one page.
ALTER TABLE metric_chunk
  ADD COLUMN first_time timestamptz,
  ADD COLUMN times      bytea,
  ADD CONSTRAINT metric_chunk_times_are_whole CHECK ((first_time IS NULL) = (times IS NULL)
                                                     AND (times IS NULL OR octet_length(times) BETWEEN n AND 5 * n));
ALTER TABLE metric_chunk ALTER COLUMN times SET STORAGE PLAIN;
