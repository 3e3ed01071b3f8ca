-- Jobs, attempts, placements of ranks, events, and the leader.
-- The numbers of states are those of trainyard.v1 (service/store/state.h repeats them).

CREATE TABLE leader (
  one        boolean PRIMARY KEY DEFAULT true CHECK (one),
  epoch      bigint NOT NULL CHECK (epoch >= 0),
  holder     text NOT NULL,
  elected_at timestamptz NOT NULL
) WITH (fillfactor = 50);
INSERT INTO leader (epoch, holder, elected_at) VALUES (0, '', now());

CREATE TABLE executor (
  id             text PRIMARY KEY CHECK (length(id) BETWEEN 1 AND 63),
  incarnation    bigint NOT NULL,
  state          smallint NOT NULL CHECK (state BETWEEN 1 AND 2),
  hostname       text NOT NULL,
  address        text NOT NULL,
  version        text NOT NULL,
  slots          integer NOT NULL CHECK (slots >= 0),
  reason         text NOT NULL,
  attach_time    timestamptz NOT NULL,
  heartbeat_time timestamptz NOT NULL,
  lost_time      timestamptz,
  CONSTRAINT executor_lost_has_time CHECK ((state = 2) = (lost_time IS NOT NULL))
) WITH (fillfactor = 70);

CREATE TABLE device (
  executor     text NOT NULL REFERENCES executor ON DELETE CASCADE,
  position     integer NOT NULL,
  kind         text NOT NULL CHECK (kind IN ('cpu', 'cuda')),
  index        integer NOT NULL,
  model        text NOT NULL,
  memory_bytes bigint NOT NULL,
  PRIMARY KEY (executor, position)
);

-- The row is the lock of everything that belongs to the job: a transaction locks it before it writes attempts,
-- placements, checkpoints or events of the job.
CREATE TABLE job (
  id             bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  name           text NOT NULL,
  queue          text NOT NULL,
  state          smallint NOT NULL CHECK (state BETWEEN 1 AND 11),
  reason         text NOT NULL DEFAULT '',
  priority       integer NOT NULL,
  world_size     integer NOT NULL CHECK (world_size BETWEEN 1 AND 1024),
  accelerator    text NOT NULL CHECK (accelerator IN ('cpu', 'cuda')),
  max_restarts   integer NOT NULL CHECK (max_restarts >= 0),
  restarts       integer NOT NULL DEFAULT 0 CHECK (restarts >= 0),
  attempt        integer NOT NULL DEFAULT 0 CHECK (attempt >= 0),
  steps          bigint NOT NULL CHECK (steps >= 0),
  step           bigint NOT NULL DEFAULT 0 CHECK (step >= 0),
  keep_last      integer NOT NULL CHECK (keep_last >= 0),
  keep_best      integer NOT NULL CHECK (keep_best >= 0),
  last_event     bigint NOT NULL DEFAULT 1 CHECK (last_event >= 1),
  weights_sha256 text NOT NULL DEFAULT '' CHECK (weights_sha256 ~ '^([0-9a-f]{64})?$'),
  create_time    timestamptz NOT NULL DEFAULT now(),
  start_time     timestamptz,
  end_time       timestamptz,
  CONSTRAINT job_ended_has_time CHECK ((state >= 9) = (end_time IS NOT NULL)),
  CONSTRAINT job_running_has_started CHECK (state NOT IN (3, 9) OR start_time IS NOT NULL),
  CONSTRAINT job_placed_has_attempt CHECK (state NOT IN (2, 3, 4, 9) OR attempt > 0)
) WITH (fillfactor = 70);
CREATE INDEX job_by_state ON job (state, id);

-- A table of its own, because a spec is written once and is as large as the rest of the job, whose row changes often.
CREATE TABLE job_spec (
  job  bigint PRIMARY KEY REFERENCES job ON DELETE CASCADE,
  body bytea NOT NULL
);

CREATE TABLE attempt (
  job             bigint NOT NULL REFERENCES job ON DELETE CASCADE,
  number          integer NOT NULL CHECK (number > 0),
  state           smallint NOT NULL CHECK (state BETWEEN 1 AND 4),
  epoch           bigint NOT NULL,
  from_step       bigint NOT NULL CHECK (from_step >= 0),
  from_checkpoint bigint,
  reason          text NOT NULL DEFAULT '',
  create_time     timestamptz NOT NULL DEFAULT now(),
  start_time      timestamptz,
  end_time        timestamptz,
  PRIMARY KEY (job, number),
  CONSTRAINT attempt_ended_has_time CHECK ((state = 4) = (end_time IS NOT NULL)),
  CONSTRAINT attempt_running_has_started CHECK (state <> 2 OR start_time IS NOT NULL),
  CONSTRAINT attempt_from_is_whole CHECK (from_checkpoint IS NOT NULL OR from_step = 0)
) WITH (fillfactor = 70);
-- At most one attempt of a job is open.
CREATE UNIQUE INDEX attempt_open ON attempt (job) WHERE state < 4;

CREATE TABLE placement (
  job            bigint NOT NULL,
  attempt        integer NOT NULL,
  rank           integer NOT NULL CHECK (rank BETWEEN 0 AND 1023),
  executor       text NOT NULL,
  pid            integer,
  pid_start_time bigint,
  end_time       timestamptz,
  exit_code      integer,
  signal         integer,
  cause          smallint,
  message        text,
  last_sequence  bigint,
  step           bigint,
  -- The final report of the worker, from its record in the sequence.
  word_cause     smallint,
  word_message   text,
  PRIMARY KEY (job, attempt, rank),
  FOREIGN KEY (job, attempt) REFERENCES attempt ON DELETE CASCADE,
  CONSTRAINT placement_process_is_whole CHECK ((pid IS NULL) = (pid_start_time IS NULL)),
  CONSTRAINT placement_ended_has_cause CHECK ((end_time IS NULL) = (cause IS NULL))
) WITH (fillfactor = 70);

-- Numbered for each job under the lock of the job's row: numbers of one sequence for the whole table would commit out
-- of order, and a watcher would miss rows. request_id makes a mutation happen only once.
CREATE TABLE event (
  job        bigint NOT NULL REFERENCES job ON DELETE CASCADE,
  number     bigint NOT NULL CHECK (number >= 1),
  time       timestamptz NOT NULL DEFAULT clock_timestamp(),
  attempt    integer NOT NULL,
  kind       text NOT NULL CHECK (kind ~ '^[a-z][a-z0-9_]{0,62}$'),
  state      smallint NOT NULL CHECK (state BETWEEN 1 AND 11),
  message    text NOT NULL,
  request_id text CHECK (length(request_id) BETWEEN 1 AND 200),
  PRIMARY KEY (job, number)
);
CREATE UNIQUE INDEX event_request ON event (request_id) WHERE request_id IS NOT NULL;
