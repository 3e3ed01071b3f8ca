DROP TABLE imported_run;
