DROP TRIGGER state_guard ON job;
DROP TRIGGER state_guard ON attempt;
DROP TRIGGER state_guard ON checkpoint;
DROP TRIGGER state_guard ON executor;
DROP FUNCTION state_guard();
DROP TABLE state_edge;
