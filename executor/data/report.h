/* The records of trainyard-data. */
#ifndef EXECUTOR_DATA_REPORT_H
#define EXECUTOR_DATA_REPORT_H

#include "executor/data/fetch.h"

/* The end of the agent is found by those who wait for it: a record that cannot be written is dropped. */
void report_event(const char *event, const char *message);

/* How far it is, at most once in REPORT_PROGRESS_MS, and the first time at once if anything must be copied. */
enum { REPORT_PROGRESS_MS = 15 * 1000 };
struct report_progress {
    int64_t since_ms, last_ms, last_received;
    bool begun;
};
void report_progress(struct report_progress *p, const struct fetch *f);

/* The objects, the event data_ready, and the last report. of_checkpoint: a failure is that of the checkpoint. */
void report_last(const struct report_progress *p, const struct fetch *f, status_t st, bool of_checkpoint,
                 const struct err *why);

#endif
