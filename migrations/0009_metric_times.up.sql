-- When each point was reported. Chunks from before have no times.

-- Milliseconds from one point's time to the next, as zigzag varints (service/store/metric_times.h): one or two bytes a
-- point of most series, so that a row and its next version still fit a page.
ALTER TABLE metric_chunk
  ADD COLUMN first_time timestamptz,
  ADD COLUMN times      bytea,
  ADD CONSTRAINT metric_chunk_times_are_whole CHECK ((first_time IS NULL) = (times IS NULL)
                                                     AND (times IS NULL OR octet_length(times) BETWEEN n AND 5 * n));
ALTER TABLE metric_chunk ALTER COLUMN times SET STORAGE PLAIN;
