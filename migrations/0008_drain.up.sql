-- Drained hosts get no new ranks until a user ends the drain, also under a new leader and after a restart of the agent.

ALTER TABLE executor
  ADD COLUMN drain_time      timestamptz,
  ADD COLUMN drain_reason    text NOT NULL DEFAULT '',
  ADD COLUMN drain_requester text NOT NULL DEFAULT '',
  ADD COLUMN drain_now       boolean NOT NULL DEFAULT false, -- their ranks are preempted, too
  ADD CONSTRAINT executor_drained_has_time
    CHECK (drain_time IS NOT NULL OR (drain_reason = '' AND drain_requester = '' AND NOT drain_now));
