#include "cli/table.h"

#include "base/alloc.h"
#include "base/utf8.h"
#include "cli/colour.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void table_init(struct table *t, const char *const heads[]) { *t = (struct table){ .heads = heads }; }

void table_done(struct table *t) {
    for (size_t i = 0; i < t->n; i++)
        free(t->cells[i]);
    free(t->cells);
    *t = (struct table){ 0 };
}

void table_cell(struct table *t, const char *fmt, ...) {
    char *text = NULL;
    va_list args;
    va_start(args, fmt);
    int n = vasprintf(&text, fmt, args);
    va_end(args);
    if (n < 0)
        alloc_refused(strlen(fmt));
    t->cells = alloc_grow(t->cells, t->n, sizeof *t->cells);
    utf8_printable(text, strlen(text), "", text);
    t->cells[t->n++] = text;
}

static size_t width_of(const char *s) {
    size_t width = 0;
    for (; *s; s++)
        width += ((unsigned char)*s & 0xc0) != 0x80;
    return width;
}

/* colour: an escape sequence, or "". */
static status_t print_cell(const char *s, const char *colour, size_t width, bool last, struct bytes *ret,
                           struct err *e) {
    size_t pad = last ? 0 : width - width_of(s) + 2;
    return bytes_printf(ret, e, "%s%s%s%*s%s", colour, s, *colour ? COLOUR_END : "", (int)pad, "", last ? "\n" : "");
}

status_t table_print(const struct table *t, bool coloured, struct bytes *ret, struct err *e) {
    size_t columns = 0, width[TABLE_COLUMNS] = { 0 };
    for (; t->heads[columns] && columns < TABLE_COLUMNS; columns++)
        width[columns] = width_of(t->heads[columns]);
    for (size_t i = 0; i < t->n; i++) {
        size_t w = width_of(t->cells[i]), column = i % columns;
        width[column] = w > width[column] ? w : width[column];
    }
    for (size_t i = 0; i < columns; i++)
        TRY(print_cell(t->heads[i], "", width[i], i + 1 == columns, ret, e));
    for (size_t i = 0; i < t->n; i++) {
        const bool is_state = coloured && strcmp(t->heads[i % columns], "STATE") == 0;
        TRY(print_cell(t->cells[i], is_state ? colour_of_state(t->cells[i]) : "", width[i % columns],
                       (i + 1) % columns == 0, ret, e));
    }
    return ST_OK;
}
