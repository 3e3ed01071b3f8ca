-- A token of role EXECUTOR (4) speaks for one executor, the first that attaches with it, unless it is shared. Tokens
-- that exist already may be in use by several executors, and are shared.

ALTER TABLE token
  ADD COLUMN executor text,                           -- of this token alone; no reference: executors are forgotten
  ADD COLUMN shared boolean NOT NULL DEFAULT false;   -- any executors may attach with it
UPDATE token SET shared = true WHERE role = 4;
ALTER TABLE token
  ADD CONSTRAINT token_speaks_for_executor CHECK (executor IS NULL OR role = 4 AND NOT shared),
  ADD CONSTRAINT token_shared_is_executor CHECK (NOT shared OR role = 4);
CREATE UNIQUE INDEX token_by_executor ON token (executor) WHERE revoke_time IS NULL;
