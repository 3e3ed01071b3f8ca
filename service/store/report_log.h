/* The log lines of one batch, as rows. Internal to the store. */
#ifndef SERVICE_STORE_REPORT_LOG_H
#define SERVICE_STORE_REPORT_LOG_H

#include "service/store/report.h"
#include "service/store/sql.h"

/* Stores the log records among records[from..n). The job's row is locked. *ret_lines: stored. */
MUST_CHECK status_t log_write(struct connection *c, const struct store_batch *batch, size_t from, int64_t *ret_lines,
                              struct err *e);

#endif
