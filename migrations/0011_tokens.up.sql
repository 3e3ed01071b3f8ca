-- Tokens authenticate callers. Only the SHA-256 of the secret is stored, so that a reader of this table cannot use it.

CREATE TABLE token (
  name         text PRIMARY KEY CHECK (name ~ '^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$'),
  digest       bytea NOT NULL UNIQUE CHECK (length(digest) = 32),
  role         smallint NOT NULL CHECK (role BETWEEN 1 AND 4), -- as in access.proto
  create_time  timestamptz NOT NULL DEFAULT now(),
  expire_time  timestamptz CHECK (expire_time > create_time),
  revoke_time  timestamptz CHECK (revoke_time >= create_time)
);
