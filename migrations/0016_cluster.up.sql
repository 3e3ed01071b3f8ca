-- The id of the cluster, and the elections that the database remembers. A database that was restored from a backup
-- lacks the newest ones; executors that obeyed one of them reveal that.

CREATE TABLE cluster (
  one         boolean PRIMARY KEY DEFAULT true CHECK (one),
  id          uuid NOT NULL DEFAULT gen_random_uuid(),
  create_time timestamptz NOT NULL DEFAULT now()
);
INSERT INTO cluster DEFAULT VALUES;

-- After a restore an epoch's number may be used again, but its nonce is different.
ALTER TABLE leader ADD COLUMN nonce uuid NOT NULL DEFAULT gen_random_uuid();
-- The PostgreSQL cluster and timeline of the last election. A restore or a standby that took over has another one.
ALTER TABLE leader ADD COLUMN server text NOT NULL DEFAULT '';

CREATE TABLE election (
  epoch bigint PRIMARY KEY CHECK (epoch > 0),
  nonce uuid NOT NULL,
  time  timestamptz NOT NULL DEFAULT now()
);

-- Acknowledged records that a rollback of the database lost, and that no spool had any more.
ALTER TABLE job ADD COLUMN records_lost bigint NOT NULL DEFAULT 0
  CONSTRAINT job_records_lost_is_a_count CHECK (records_lost >= 0);
