-- Archives of program code: tar files by their SHA-256, in chunks of 1 MiB, and the jobs that use them.

CREATE TABLE code_archive (
  sha256        bytea PRIMARY KEY,
  bytes         bigint NOT NULL,
  complete_time timestamptz,                        -- every chunk is stored, and the SHA-256 was compared
  use_time      timestamptz NOT NULL DEFAULT now(), -- of the last chunk, submission or question; not exact
  CONSTRAINT code_archive_has_digest CHECK (length(sha256) = 32),
  CONSTRAINT code_archive_has_bytes CHECK (bytes BETWEEN 1 AND 536870912)
);
CREATE INDEX code_archive_use ON code_archive (use_time);

CREATE TABLE code_chunk (
  archive bytea NOT NULL REFERENCES code_archive ON DELETE CASCADE,
  number  integer NOT NULL,
  crc32c  bigint NOT NULL,
  data    bytea NOT NULL,
  PRIMARY KEY (archive, number),
  CONSTRAINT code_chunk_is_small CHECK (length(data) BETWEEN 1 AND 1048576),
  CONSTRAINT code_chunk_has_number CHECK (number BETWEEN 0 AND 511),
  CONSTRAINT code_chunk_has_crc CHECK (crc32c BETWEEN 0 AND 4294967295)
);
-- Compressing a chunk costs more time than it saves.
ALTER TABLE code_chunk ALTER COLUMN data SET STORAGE EXTERNAL;

CREATE TABLE job_code (
  job     bigint PRIMARY KEY REFERENCES job ON DELETE CASCADE,
  archive bytea NOT NULL REFERENCES code_archive
);
CREATE INDEX job_code_archive ON job_code (archive);

-- The sum of the sizes of all archives, in one row, so that the limit is checked under its lock.
CREATE TABLE code_total (
  one   boolean PRIMARY KEY DEFAULT true,
  bytes bigint NOT NULL DEFAULT 0,
  CONSTRAINT code_total_has_one_row CHECK (one),
  CONSTRAINT code_total_is_a_sum CHECK (bytes >= 0)
);
INSERT INTO code_total DEFAULT VALUES;
