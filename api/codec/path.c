#include "api/codec/field_option.h"
#include "api/codec/parse.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A longer key is cut in error messages. */
enum { KEY_SHOWN_BYTES = 64 };

size_t path_push(struct field_path *p, const char *name, size_t n) {
    size_t mark = p->len;
    size_t keep = n > KEY_SHOWN_BYTES ? KEY_SHOWN_BYTES : n;
    while (keep < n && keep > 0 && ((unsigned char)name[keep] & 0xc0) == 0x80)
        keep--;
    if (p->len + keep + 2 > sizeof p->text)
        return mark;
    if (p->len)
        p->text[p->len++] = '.';
    utf8_printable(name, keep, "", p->text + p->len);
    p->len += keep;
    p->text[p->len] = '\0';
    return mark;
}

size_t path_push_index(struct field_path *p, size_t index) {
    size_t mark = p->len;
    char text[32];
    int n = snprintf(text, sizeof text, "[%zu]", index);
    if (p->len + (size_t)n + 1 <= sizeof p->text) {
        memcpy(p->text + p->len, text, (size_t)n + 1);
        p->len += (size_t)n;
    }
    return mark;
}

void path_pop(struct field_path *p, size_t mark) {
    p->len = mark;
    p->text[mark] = '\0';
}

status_t path_err(const struct field_path *p, struct err *e, const char *fmt, ...) {
    va_list args;
    va_start(args, fmt);
    status_t st = err_vset(e, ST_INVALID_ARGUMENT, fmt, args);
    va_end(args);
    return p->len ? err_prefix(e, st, "%s: ", p->text) : st;
}

status_t field_find(const ProtobufCMessageDescriptor *desc, const char *name, size_t n, struct field_path *p,
                    const ProtobufCFieldDescriptor **ret, struct err *e) {
    for (unsigned i = 0; i < desc->n_fields; i++)
        if (strlen(desc->fields[i].name) == n && memcmp(desc->fields[i].name, name, n) == 0 &&
            !field_mapped(desc, &desc->fields[i])) {
            *ret = &desc->fields[i];
            return ST_OK;
        }
    char hint[300];
    size_t mark = path_push(p, name, n);
    field_hint(desc, name, n, p, hint, sizeof hint);
    status_t st = path_err(p, e, "unknown field; %s", hint);
    path_pop(p, mark);
    return st;
}
