DROP TABLE artifact;
