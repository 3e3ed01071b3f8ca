-- Executors whose agent's stream has ended, or whose agent was asked to stop: they get no new ranks, but are not lost
-- yet.

ALTER TABLE executor
  ADD COLUMN detach_time timestamptz,
  ADD COLUMN leaving     boolean NOT NULL DEFAULT false,
  ADD CONSTRAINT executor_detached_is_not_lost CHECK (detach_time IS NULL OR state = 1),
  ADD CONSTRAINT executor_leaving_has_time CHECK (NOT leaving OR detach_time IS NOT NULL);
