-- Files that the program of a job has logged to a tracker. The bytes are in the job's folder.

CREATE TABLE artifact (
  job     bigint NOT NULL REFERENCES job ON DELETE CASCADE,
  path    text COLLATE "C" NOT NULL,
  attempt integer NOT NULL,
  rank    integer NOT NULL,
  bytes   bigint NOT NULL,
  sha256  text NOT NULL,
  time    timestamptz NOT NULL,
  PRIMARY KEY (job, path),
  CONSTRAINT artifact_has_path CHECK (octet_length(path) BETWEEN 1 AND 440),
  CONSTRAINT artifact_has_size CHECK (bytes >= 0),
  CONSTRAINT artifact_has_digest CHECK (sha256 ~ '^[0-9a-f]{64}$')
);
