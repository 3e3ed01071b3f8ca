-- Secrets: encrypted values by name. The keys are in files of the controllers, never here.

CREATE TABLE secret (
  name        text PRIMARY KEY,
  key         text NOT NULL,                          -- the id of the key that encrypts the value
  ciphertext      bytea NOT NULL,                         -- 12 bytes of nonce, the encrypted value, 16 bytes of tag
  creator     text NOT NULL,                          -- the token of the first caller; '': a caller without one
  create_time timestamptz NOT NULL DEFAULT now(),
  update_time timestamptz NOT NULL DEFAULT now(),     -- of the value
  CONSTRAINT secret_has_name CHECK (name ~ '^[A-Za-z_][A-Za-z0-9_]{0,127}$'),
  CONSTRAINT secret_has_key CHECK (key ~ '^[0-9a-f]{16}$'),
  CONSTRAINT secret_is_small CHECK (length(ciphertext) BETWEEN 29 AND 65564),
  CONSTRAINT secret_has_times CHECK (update_time >= create_time)
);
-- Encrypted bytes cannot be compressed.
ALTER TABLE secret ALTER COLUMN ciphertext SET STORAGE EXTERNAL;
