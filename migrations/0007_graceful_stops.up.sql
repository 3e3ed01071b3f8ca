-- A job that has not begun to train may be preempted, and a job that is being preempted may finish its last step.

INSERT INTO state_edge VALUES ('job', 2, 5), ('job', 2, 6), ('job', 5, 9), ('job', 6, 9);
