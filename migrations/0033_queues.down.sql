DROP TABLE queue;
