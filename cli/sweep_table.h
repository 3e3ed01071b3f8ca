/* The tables of trials that `sweep get` and `sweep create --dry-run` print. */
#ifndef CLI_SWEEP_TABLE_H
#define CLI_SWEEP_TABLE_H

#include "cli/output.h"

#include <trainyard/v1/sweep.pb-c.h>

/* Sorts the trials by their metric, the best one first; those without a number as metric come last, by number. */
void sweep_table_sort(Trainyard__V1__ListTrialsResponse *answer);

/* The sweep in lines, then its trials. answer->sweep is set. */
MUST_CHECK status_t sweep_table_trials(const Trainyard__V1__ListTrialsResponse *answer, struct err *e);

/* The numbers and values of trials. */
MUST_CHECK status_t sweep_table_values(const Trainyard__V1__ValidateSweepResponse *answer, struct err *e);

#endif
