#include "service/http/exposition.h"

#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static void sample(struct exposition *x, const char *name, const char *labels, double value) {
    char number[32];
    if (isnan(value))
        snprintf(number, sizeof number, "NaN");
    else if (isinf(value))
        snprintf(number, sizeof number, value > 0 ? "+Inf" : "-Inf");
    else
        snprintf(number, sizeof number, "%.17g", value);
    if (x->st == ST_OK)
        x->st = bytes_printf(x->text, x->e, labels[0] ? "%s{%s} %s\n" : "%s%s %s\n", name, labels, number);
}

void exposition_family(struct exposition *x, const char *name, const char *type, const char *help) {
    if (x->st == ST_OK)
        x->st = bytes_printf(x->text, x->e, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, type);
}

void exposition_value(struct exposition *x, const char *name, const char *labels, double value) {
    sample(x, name, labels, value);
}

void exposition_object(struct exposition *x, const char *name, const char *labels, double value) {
    if (isnan(value))
        return;
    if (x->text->len >= x->object_bytes)
        x->left_out++;
    else
        sample(x, name, labels, value);
}

void exposition_histogram(struct exposition *x, const char *name, const char *labels, const struct histogram *h) {
    char part[160], with[320];
    const char *comma = labels[0] ? "," : "";
    int64_t below = 0;
    snprintf(part, sizeof part, "%s_bucket", name);
    for (int i = 0; i <= h->n_bounds; i++) {
        below += atomic_load(&h->counts[i]);
        if (i < h->n_bounds)
            snprintf(with, sizeof with, "%s%sle=\"%g\"", labels, comma, h->bounds[i]);
        else
            snprintf(with, sizeof with, "%s%sle=\"+Inf\"", labels, comma);
        sample(x, part, with, (double)below);
    }
    snprintf(part, sizeof part, "%s_sum", name);
    sample(x, part, labels, (double)atomic_load(&h->sum_ns) / 1e9);
    snprintf(part, sizeof part, "%s_count", name);
    sample(x, part, labels, (double)below);
}

void exposition_single(struct exposition *x, const char *name, const char *type, const char *help, double value) {
    exposition_family(x, name, type, help);
    sample(x, name, "", value);
}

void exposition_single_histogram(struct exposition *x, const char *name, const char *help, const struct histogram *h) {
    exposition_family(x, name, "histogram", help);
    exposition_histogram(x, name, "", h);
}

void exposition_escape(const char *value, char *ret, size_t bytes) {
    size_t n = 0;
    for (; *value; value++) {
        const char escape = *value == '\n' ? 'n' : *value == '"' || *value == '\\' ? *value : 0;
        if (n + 2 >= bytes)
            break;
        if (escape)
            ret[n++] = '\\';
        ret[n++] = escape ? escape : *value;
    }
    while (n > 0 && ((unsigned char)*value & 0xc0) == 0x80 && ((unsigned char)ret[n - 1] & 0x80))
        if (((unsigned char)ret[--n] & 0xc0) == 0xc0) /* cut before the character, not inside it */
            break;
    ret[n] = '\0';
}
