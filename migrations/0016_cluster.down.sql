ALTER TABLE job DROP COLUMN records_lost;
DROP TABLE election;
ALTER TABLE leader DROP COLUMN nonce, DROP COLUMN server;
DROP TABLE cluster;
