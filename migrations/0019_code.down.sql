DROP TABLE code_total;
DROP TABLE job_code;
DROP TABLE code_chunk;
DROP TABLE code_archive;
