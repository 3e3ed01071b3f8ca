-- A job may be paused in every state in which it waits, and while it is preempted. A job that is being paused may fail.

INSERT INTO state_edge VALUES ('job', 1, 7), ('job', 4, 6), ('job', 4, 7), ('job', 5, 6), ('job', 6, 10);
