#include "base/bytes.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

void bytes_init(struct bytes *b, size_t limit) { *b = (struct bytes){ .limit = limit }; }

void bytes_done(struct bytes *b) {
    free(b->data);
    b->data = NULL;
    b->len = b->cap = 0;
}

status_t bytes_reserve(struct bytes *b, size_t n, struct err *e) {
    if (n > b->limit || b->len > b->limit - n)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "a buffer of at most %zu bytes cannot take %zu more", b->limit, n);
    /* One byte more, because the data always ends with a NUL. */
    size_t need = b->len + n + 1;
    if (need <= b->cap)
        return ST_OK;
    size_t cap = b->cap ? b->cap : 64;
    /* The capacity doubles, so that many small appends cost linear time. */
    while (cap < need)
        cap = cap > SIZE_MAX / 2 ? need : cap * 2;
    char *grown = realloc(b->data, cap);
    if (!grown)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a buffer of %zu bytes", cap);
    b->data = grown;
    b->cap = cap;
    return ST_OK;
}

status_t bytes_append(struct bytes *b, const void *data, size_t n, struct err *e) {
    TRY(bytes_reserve(b, n, e));
    if (n)
        memcpy(b->data + b->len, data, n);
    b->len += n;
    b->data[b->len] = '\0';
    return ST_OK;
}

status_t bytes_printf(struct bytes *b, struct err *e, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    if (n < 0)
        return err_set(e, ST_INTERNAL, "a text could not be formatted");
    TRY(bytes_reserve(b, (size_t)n, e));
    va_start(args, fmt);
    vsnprintf(b->data + b->len, (size_t)n + 1, fmt, args);
    va_end(args);
    b->len += (size_t)n;
    return ST_OK;
}

char *bytes_take(struct bytes *b) {
    char *taken = b->data;
    b->data = NULL;
    b->len = b->cap = 0;
    return taken;
}
