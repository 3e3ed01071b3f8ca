/* Isolates a record that PostgreSQL refuses because of its content (a constraint that the store does not check itself).
 * The write is split into batches, then a batch into records, until the refused record is alone. A notice
 * "records_dropped" is stored in its place, under its sequence number, so that the other ranks of the write and the
 * later records of this rank are stored. Internal to the store. */
#ifndef SERVICE_STORE_REPORT_SPLIT_H
#define SERVICE_STORE_REPORT_SPLIT_H

#include "service/store/report.h"

/* Writes batches in one transaction. */
typedef status_t report_write_fn(struct store_report *r, const struct store_batch *batches, size_t n,
                                 struct store_batch_result *results, struct err *e);

/* Whether a record may be the cause of this status: false if another try may succeed. */
bool report_refused(status_t st);

/* Like store_report_write, but writes batches one by one, and the records of a refused batch one by one. Each write is
 * a transaction: after an error some of them are stored, and the next call skips these. If the notice is refused too
 * (the epoch is over), the call fails. */
MUST_CHECK status_t report_write_split(struct store_report *r, report_write_fn *write,
                                       const struct store_batch *batches, size_t n, struct store_batch_result *results,
                                       struct err *e);

#endif
