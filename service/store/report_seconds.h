/* Divides the time of a rank by its cause, from its records. Pure. Internal to the store.
 *
 * The records of a rank divide its time into intervals: each ends with a record that counts, and begins with the one
 * before. The first of these records ends the start of the rank. What follows the last one, only a reader knows
 * (rank_seconds.h, which also defines the causes).
 *
 *   a rank of a model    the record that it has joined, one row of metrics for each step, its final report. The row has
 *                        the seconds that the rank waited for data and for other ranks, and that it stood still for a
 *                        checkpoint; the rest of the interval is compute. The interval before the final report of a
 *                        rank that ended as asked is that of its last checkpoint
 *   rank 0 of a program  each row of metrics, its final report. Everything behind the first row is compute
 *
 * The whole interval of a step that an earlier attempt had already reported is repeated.
 *
 * The sums are stored with the rank's high-water mark, in one row and by one statement: a record that is sent again
 * adds nothing. Times come from the clock of the rank's host. An interval that a change of this clock makes negative
 * counts as 0. */
#ifndef SERVICE_STORE_REPORT_SECONDS_H
#define SERVICE_STORE_REPORT_SECONDS_H

#include "service/store/report.h"

/* The columns of a rank's row (migrations/0026). Microseconds. */
struct rank_time {
    int64_t joined_us; /* when the rank had joined, since 1970; 0: not yet */
    int64_t begun_us;  /* the end of its start; 0: not yet */
    int64_t until_us;  /* the end of the last interval */
    int64_t data_us, compute_us, waiting_us, checkpoint_us, repeated_us;
};

/* of_program: of a program's job. repeats_until: the highest step that an earlier attempt had reported; -1: none. */
void report_seconds_add(struct rank_time *t, bool of_program, int64_t repeats_until, const struct store_record *record);

#endif
