ALTER TABLE token DROP COLUMN executor, DROP COLUMN shared;
