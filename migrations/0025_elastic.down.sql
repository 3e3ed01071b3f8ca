ALTER TABLE attempt DROP COLUMN world_size;
ALTER TABLE job DROP COLUMN max_world_size, DROP COLUMN stops_at_step;
