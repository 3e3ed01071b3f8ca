-- Jobs that are runs of an experiment tracker. Their attempt has ended when it is made, and gets its points later.

CREATE TABLE imported_run (
  job         bigint PRIMARY KEY REFERENCES job ON DELETE CASCADE,
  source      text NOT NULL,
  id          text NOT NULL,
  import_time timestamptz NOT NULL DEFAULT now(), -- of the last import that has changed something
  UNIQUE (source, id),
  CONSTRAINT imported_run_has_source CHECK (source ~ '^[a-z]{1,20}$'),
  CONSTRAINT imported_run_has_id CHECK (octet_length(id) BETWEEN 1 AND 200)
);
