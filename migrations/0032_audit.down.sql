DROP FUNCTION audit_trim(integer, integer);
DROP TABLE audit;
DROP FUNCTION audit_refuse();
