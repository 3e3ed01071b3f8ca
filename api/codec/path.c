#include "api/codec/message.h"
#include "api/codec/parse.h"
#include "base/utf8.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* A key longer than this is cut in sentences. */
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

/* Edits (insert, delete, change, swap of neighbours) from a to b; both shorter than 32. */
static int edit_distance(const char *a, size_t na, const char *b, size_t nb) {
    int d[32][32];
    for (size_t i = 0; i <= na; i++)
        for (size_t j = 0; j <= nb; j++) {
            if (i == 0 || j == 0) {
                d[i][j] = (int)(i + j);
                continue;
            }
            int best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            best = d[i - 1][j] + 1 < best ? d[i - 1][j] + 1 : best;
            best = d[i][j - 1] + 1 < best ? d[i][j - 1] + 1 : best;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && d[i - 2][j - 2] + 1 < best)
                best = d[i - 2][j - 2] + 1;
            d[i][j] = best;
        }
    return d[na][nb];
}

/* The field whose name is at most two typing errors away (one for short names), or NULL. */
static const char *nearest_name(const ProtobufCMessageDescriptor *desc, const char *name, size_t n) {
    const char *best = NULL;
    int best_distance = n <= 4 ? 2 : 3;
    for (unsigned i = 0; i < desc->n_fields && n < 32; i++) {
        const char *known = desc->fields[i].name;
        size_t nk = strlen(known);
        int distance = nk < 32 ? edit_distance(name, n, known, nk) : best_distance;
        if (distance < best_distance) {
            best_distance = distance;
            best = known;
        }
    }
    return best;
}

status_t field_find(const ProtobufCMessageDescriptor *desc, const char *name, size_t n, struct field_path *p,
                    const ProtobufCFieldDescriptor **ret, struct err *e) {
    for (unsigned i = 0; i < desc->n_fields; i++)
        if (strlen(desc->fields[i].name) == n && memcmp(desc->fields[i].name, name, n) == 0) {
            *ret = &desc->fields[i];
            return ST_OK;
        }
    size_t mark = path_push(p, name, n);
    const char *near = nearest_name(desc, name, n);
    char known[300] = "";
    size_t used = 0;
    for (unsigned i = 0; i < desc->n_fields && used < sizeof known; i++)
        used += (size_t)snprintf(known + used, sizeof known - used, "%s%s", used ? ", " : "", desc->fields[i].name);
    status_t st = near ? path_err(p, e, "unknown field; did you mean %s?", near)
                       : path_err(p, e, "unknown field; known here: %s", known);
    path_pop(p, mark);
    return st;
}
