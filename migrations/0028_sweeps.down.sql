DROP TABLE sweep_trial;
DROP TABLE sweep;
DELETE FROM state_edge WHERE entity = 'sweep';
ALTER TABLE state_edge DROP CONSTRAINT state_edge_entity_check;
ALTER TABLE state_edge ADD CONSTRAINT state_edge_entity_check
  CHECK (entity IN ('job', 'attempt', 'checkpoint', 'executor'));
