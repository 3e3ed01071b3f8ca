DELETE FROM token WHERE role = 5;
ALTER TABLE token DROP CONSTRAINT token_join_expires, DROP CONSTRAINT token_role_check,
  ADD CONSTRAINT token_role_check CHECK (role BETWEEN 1 AND 4);
