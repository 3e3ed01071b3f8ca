/* A write that PostgreSQL refuses for what is in it (a constraint that the store did not foresee), cut until the guilty
 * record is alone: first into batches, then into records. In its place a notice "records_dropped" is stored under its
 * sequence number, so that the ranks that share the write, and the rank's later records, go on. Private to this folder.
 */
#ifndef SERVICE_STORE_REPORT_APART_H
#define SERVICE_STORE_REPORT_APART_H

#include "service/store/report.h"

/* One transaction. */
typedef status_t report_write_fn(struct store_report *r, const struct store_batch *batches, size_t n,
                                 struct store_batch_result *results, struct err *e);

/* Whether this status of a write can be about its records; what another try may mend is not. */
bool report_refused(status_t st);

/* As store_report_write, record by record where it must be. Each write is a transaction of its own: after an error some
 * of them are stored, which the next call skips. When the notice is refused as well (the epoch is over), so is the
 * call. */
MUST_CHECK status_t report_write_apart(struct store_report *r, report_write_fn *write,
                                       const struct store_batch *batches, size_t n, struct store_batch_result *results,
                                       struct err *e);

#endif
