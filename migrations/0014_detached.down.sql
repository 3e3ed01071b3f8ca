ALTER TABLE executor DROP COLUMN detach_time, DROP COLUMN leaving;
