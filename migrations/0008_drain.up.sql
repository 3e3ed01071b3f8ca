-- Hosts that a person takes out of use: they get no more ranks until the mark is taken away, whoever leads and however often
-- they start.

ALTER TABLE executor
  ADD COLUMN drain_time      timestamptz,
  ADD COLUMN drain_reason    text NOT NULL DEFAULT '',
  ADD COLUMN drain_requester text NOT NULL DEFAULT '',
  ADD COLUMN drain_now       boolean NOT NULL DEFAULT false, -- nor do they keep those that they have
  ADD CONSTRAINT executor_drained_has_time
    CHECK (drain_time IS NOT NULL OR (drain_reason = '' AND drain_requester = '' AND NOT drain_now));
