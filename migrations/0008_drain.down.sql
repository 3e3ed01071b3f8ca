ALTER TABLE executor DROP CONSTRAINT executor_drained_has_time, DROP COLUMN drain_time, DROP COLUMN drain_reason,
  DROP COLUMN drain_requester, DROP COLUMN drain_now;
