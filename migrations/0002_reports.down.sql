ALTER TABLE attempt DROP CONSTRAINT attempt_from_checkpoint;
DROP TABLE log_head, log_chunk, rank_sequence, metric_chunk, metric_name, shard, checkpoint;
