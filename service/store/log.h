/* Log lines of workers, in the order in which they were stored. */
#ifndef SERVICE_STORE_LOG_H
#define SERVICE_STORE_LOG_H

#include "service/store/store.h"

#include <stdbool.h>
#include <stddef.h>

struct store_log_line {
    int attempt, rank;
    int64_t time_us;
    const char *stream, *text;
};
struct store_log_query {
    int64_t job;
    int rank, attempt; /* < 0 = all */
    int64_t cursor;    /* read the lines after it; 0: from the first line */
    /* If cursor is 0: from the group of lines that has the first line of this time or later, or the last_lines-th line
     * from the end. 0: not given. */
    int64_t from_time_us;
    int last_lines;
    int limit; /* lines, 1..LIMIT_PAGE_SIZE; long lines make a page end earlier */
};
/* *ret_cursor: for the next call; unchanged if there were no lines. Lines that are stored later have a higher cursor,
 * so that repeated calls miss no line. */
MUST_CHECK status_t store_log_list(struct store *s, struct store_memory *m, const struct store_log_query *query,
                                   struct store_log_line **ret, size_t *ret_n, int64_t *ret_cursor, struct err *e);

#endif
