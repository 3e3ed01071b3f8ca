/* A table of text for a terminal: columns as wide as their widest cell, the last one open-ended. */
#ifndef CLI_TABLE_H
#define CLI_TABLE_H

#include "base/bytes.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

enum { TABLE_COLUMNS = 12 };

struct table {
    const char *const *heads; /* closed by NULL, at most TABLE_COLUMNS */
    char **cells;             /* row by row */
    size_t n;                 /* cells */
    bool cut;                 /* there was no memory for a cell: none is printed */
};

void table_init(struct table *t, const char *const heads[]);
void table_done(struct table *t);

/* The next cell. Control characters become '?': a peer's text must not steer a terminal. Where memory runs out,
 * printing says so. */
void table_cell(struct table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Appends heads and rows. Widths count code points. RESOURCE_EXHAUSTED where a cell is missing. */
MUST_CHECK status_t table_print(const struct table *t, struct bytes *ret, struct err *e);

#endif
