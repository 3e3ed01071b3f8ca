ALTER TABLE placement DROP COLUMN threads;
ALTER TABLE executor DROP COLUMN cores;
