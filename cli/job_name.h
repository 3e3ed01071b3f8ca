/* The jobs that the words of a command mean. */
#ifndef CLI_JOB_NAME_H
#define CLI_JOB_NAME_H

#include "cli/command.h"

#include <trainyard/v1/job.pb-c.h>

#define JOB_NAME_BYTES 80

/* "42" -> "jobs/42"; a word with a slash stays. Any other word is the job's own name (name in its spec): the newest job
 * that has it, which a line on stderr names if several have it. NOT_FOUND: no job has it. */
MUST_CHECK status_t job_name_find(struct cli *c, const char *word, char ret[JOB_NAME_BYTES], struct err *e);

/* Calls act for each job of `words`, or for each job that has all labels and that `may` accepts. One job: its error is
 * returned. Several: each error is printed on stderr, the rest is done, and the returned error counts them. verb:
 * "cancelled". INVALID_ARGUMENT without words and labels, or with both. */
typedef status_t job_act_fn(struct cli *c, const void *args, const char *name, struct err *e);
MUST_CHECK status_t job_name_each(struct cli *c, char *const words[], const struct text_list *labels,
                                  bool (*may)(Trainyard__V1__Job__State state), const char *verb, job_act_fn *act,
                                  const void *args, struct err *e);

#endif
