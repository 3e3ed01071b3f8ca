-- Tokens of role JOIN (5), with which a new host becomes an EXECUTOR once. They expire.

ALTER TABLE token DROP CONSTRAINT token_role_check,
  ADD CONSTRAINT token_role_check CHECK (role BETWEEN 1 AND 5),
  ADD CONSTRAINT token_join_expires CHECK (role <> 5 OR expire_time IS NOT NULL);
