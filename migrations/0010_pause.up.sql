-- A job may be paused wherever it waits, and while it leaves its hosts for another reason; one that is being paused may turn
-- out to be past help.

INSERT INTO state_edge VALUES ('job', 1, 7), ('job', 4, 6), ('job', 4, 7), ('job', 5, 6), ('job', 6, 10);
