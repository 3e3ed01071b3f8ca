/* Prints the problems of a spec: `validate` and `submit` print the same lines. */
#ifndef CLI_VALIDATE_H
#define CLI_VALIDATE_H

#include "cli/client.h"

#include <trainyard/v1/job.pb-c.h>

/* One line on stderr for each problem: "trainyard: FILE: train.steps: ...". */
void validate_print(const char *file, char *const *problems, size_t n);

/* One line on stderr for each check that was not made: "trainyard: FILE: not checked: ...". */
void validate_print_unchecked(const char *file, char *const *unchecked, size_t n);

/* Asks the controller whether CreateJob would accept the request. */
MUST_CHECK status_t validate_ask(struct cli *c, const Trainyard__V1__CreateJobRequest *request,
                                 Trainyard__V1__ValidateJobResponse **ret, struct err *e);
/* Prints the answer: problems, with the exit status 2, or the layout and the plan; with -o yaml the resolved spec. */
MUST_CHECK status_t validate_show(struct cli *c, const char *file, const Trainyard__V1__ValidateJobResponse *answer,
                                  struct err *e);

/* After CreateJob has failed with INVALID_ARGUMENT: gets all problems from the controller and prints them.
 * *ret_printed: whether there were any. */
MUST_CHECK status_t validate_refused(struct cli *c, const char *file, const Trainyard__V1__CreateJobRequest *request,
                                     bool *ret_printed, struct err *e);

#endif
