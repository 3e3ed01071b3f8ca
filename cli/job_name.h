/* The jobs that the words of a command mean. */
#ifndef CLI_JOB_NAME_H
#define CLI_JOB_NAME_H

#include "cli/command.h"

#define JOB_NAME_BYTES 80

/* "42" -> "jobs/42"; a word with a slash stays. Any other word is the job's own name (name in its spec): the newest job
 * that has it, which a line on stderr names if several have it. NOT_FOUND: no job has it. */
MUST_CHECK status_t job_name_find(struct cli *c, const char *word, char ret[JOB_NAME_BYTES], struct err *e);

#endif
