DROP VIEW rank_seconds;
ALTER TABLE attempt DROP COLUMN repeats_until;
ALTER TABLE rank_sequence
  DROP COLUMN joined_us, DROP COLUMN begun_us, DROP COLUMN until_us, DROP COLUMN data_us, DROP COLUMN compute_us,
  DROP COLUMN waiting_us, DROP COLUMN checkpoint_us, DROP COLUMN repeated_us;
