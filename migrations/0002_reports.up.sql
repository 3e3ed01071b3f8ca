-- Reports of workers: checkpoints, metrics, logs, and the high-water mark of each rank.

CREATE TABLE checkpoint (
  id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  job             bigint NOT NULL REFERENCES job ON DELETE CASCADE,
  attempt         integer NOT NULL,
  step            bigint NOT NULL CHECK (step >= 0),
  state           smallint NOT NULL DEFAULT 1 CHECK (state BETWEEN 1 AND 5),
  world_size      integer NOT NULL CHECK (world_size BETWEEN 1 AND 1024),
  shards          integer NOT NULL DEFAULT 0 CHECK (shards BETWEEN 0 AND world_size),
  bytes           bigint NOT NULL DEFAULT 0 CHECK (bytes >= 0),
  directory       text NOT NULL,
  weights_sha256  text NOT NULL DEFAULT '' CHECK (weights_sha256 ~ '^([0-9a-f]{64})?$'),
  validation_loss double precision,
  final           boolean NOT NULL DEFAULT false,
  pinned          boolean NOT NULL DEFAULT false,
  reason          text NOT NULL DEFAULT '',
  create_time     timestamptz NOT NULL DEFAULT now(),
  commit_time     timestamptz,
  delete_time     timestamptz,
  UNIQUE (job, attempt, step),
  FOREIGN KEY (job, attempt) REFERENCES attempt ON DELETE CASCADE,
  CONSTRAINT checkpoint_committed_has_time CHECK (state NOT IN (2, 3) OR commit_time IS NOT NULL),
  CONSTRAINT checkpoint_committed_is_whole CHECK (state <> 2 OR shards = world_size),
  CONSTRAINT checkpoint_writing_is_not_committed CHECK (state <> 1 OR commit_time IS NULL),
  CONSTRAINT checkpoint_corrupt_has_reason CHECK (state <> 3 OR reason <> ''),
  CONSTRAINT checkpoint_deleted_has_time CHECK ((state >= 4) = (delete_time IS NOT NULL))
) WITH (fillfactor = 70);
CREATE INDEX checkpoint_good ON checkpoint (job, step DESC, attempt DESC) WHERE state = 2;
CREATE INDEX checkpoint_deleting ON checkpoint (job) WHERE state = 4;

ALTER TABLE attempt ADD CONSTRAINT attempt_from_checkpoint FOREIGN KEY (from_checkpoint) REFERENCES checkpoint;

CREATE TABLE shard (
  checkpoint bigint NOT NULL REFERENCES checkpoint ON DELETE CASCADE,
  rank       integer NOT NULL CHECK (rank BETWEEN 0 AND 1023),
  file       text NOT NULL,
  bytes      bigint NOT NULL CHECK (bytes >= 0),
  sha256     text NOT NULL CHECK (sha256 ~ '^[0-9a-f]{64}$'),
  PRIMARY KEY (checkpoint, rank)
);

CREATE TABLE metric_name (
  id   integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name text NOT NULL UNIQUE CHECK (length(name) BETWEEN 1 AND 64)
);

-- Up to 240 points of one series in one row, stored inline. Only the last chunk of a series is updated, until it is
-- full; fillfactor leaves space on the page for these updates. Steps are first_step + i * stride, or first_step +
-- offsets[i] if they are not regular.
CREATE TABLE metric_chunk (
  job        bigint NOT NULL,
  name       integer NOT NULL REFERENCES metric_name,
  rank       integer NOT NULL,
  attempt    integer NOT NULL,
  number     integer NOT NULL CHECK (number >= 0),
  n          smallint NOT NULL CHECK (n BETWEEN 1 AND 240),
  stride     integer CHECK (stride >= 0),
  first_step bigint NOT NULL,
  last_step  bigint NOT NULL,
  min        double precision NOT NULL,
  max        double precision NOT NULL,
  sum        double precision NOT NULL,
  values     double precision[] NOT NULL,
  offsets    integer[],
  PRIMARY KEY (job, name, rank, attempt, number),
  CONSTRAINT metric_chunk_steps_are_given CHECK ((stride IS NULL) = (offsets IS NOT NULL)),
  CONSTRAINT metric_chunk_is_whole CHECK (cardinality(values) = n AND (offsets IS NULL OR cardinality(offsets) = n)),
  CONSTRAINT metric_chunk_steps_in_order CHECK (last_step >= first_step)
) WITH (fillfactor = 75);
ALTER TABLE metric_chunk ALTER COLUMN values SET STORAGE PLAIN, ALTER COLUMN offsets SET STORAGE PLAIN;

-- All records of the rank up to `sequence` are stored.
CREATE TABLE rank_sequence (
  job      bigint NOT NULL,
  attempt  integer NOT NULL,
  rank     integer NOT NULL,
  sequence bigint NOT NULL CHECK (sequence >= 0),
  PRIMARY KEY (job, attempt, rank),
  FOREIGN KEY (job, attempt) REFERENCES attempt ON DELETE CASCADE
) WITH (fillfactor = 50);

-- Lines of one rank that were stored together. Numbered for each job under the lock of the job's row, like events.
CREATE TABLE log_chunk (
  job     bigint NOT NULL REFERENCES job ON DELETE CASCADE,
  number  bigint NOT NULL CHECK (number >= 1),
  attempt integer NOT NULL,
  rank    integer NOT NULL,
  times   timestamptz[] NOT NULL,
  streams text[] NOT NULL,
  lines   text[] NOT NULL,
  bytes   bigint NOT NULL CHECK (bytes >= 0),
  PRIMARY KEY (job, number),
  CONSTRAINT log_chunk_is_whole CHECK (cardinality(lines) BETWEEN 1 AND 1000 AND cardinality(times) = cardinality(lines)
                                       AND cardinality(streams) = cardinality(lines))
);
-- The last number and the size of a job's log.
CREATE TABLE log_head (
  job       bigint PRIMARY KEY REFERENCES job ON DELETE CASCADE,
  last      bigint NOT NULL,
  bytes     bigint NOT NULL,
  full_told boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50);
