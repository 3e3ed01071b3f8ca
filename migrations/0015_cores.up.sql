-- The ranks of an executor share its cores: the number of cores, and the number of threads that each rank uses.

ALTER TABLE executor ADD COLUMN cores integer NOT NULL DEFAULT 0 CHECK (cores BETWEEN 0 AND 1024);
ALTER TABLE placement ADD COLUMN threads integer CHECK (threads BETWEEN 1 AND 1024);
