-- A job that has not begun to train may be told to leave its hosts, and one that is told so may end its last step meanwhile.

INSERT INTO state_edge VALUES ('job', 2, 5), ('job', 2, 6), ('job', 5, 9), ('job', 6, 9);
