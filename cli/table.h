/* A table of text for a terminal. Each column is as wide as its widest cell; the last one is not padded. */
#ifndef CLI_TABLE_H
#define CLI_TABLE_H

#include "base/bytes.h"
#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

enum { TABLE_COLUMNS = 20 };

struct table {
    const char *const *heads; /* terminated by NULL, at most TABLE_COLUMNS */
    char **cells;             /* row by row */
    size_t n;                 /* cells */
};

void table_init(struct table *t, const char *const heads[]);
void table_done(struct table *t);

/* Appends a cell. Control characters become '?', because a peer's text must not control the terminal. */
void table_cell(struct table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Appends heads and rows. Widths count code points. coloured: the cells of the column STATE get the state's colour. */
MUST_CHECK status_t table_print(const struct table *t, bool coloured, struct bytes *ret, struct err *e);

#endif
