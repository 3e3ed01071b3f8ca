#include "executor/agent/peaks.h"

#include "base/alloc.h"
#include "base/file.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_BYTES = PEAKS_MAX * (PEAK_KEY_BYTES + 32) };

struct peaks {
    char *path;
    size_t n;
    Trainyard__V1__HostPeak items[PEAKS_MAX], *list[PEAKS_MAX]; /* the one that was changed last comes last */
};

static void item_remove(struct peaks *p, size_t i) {
    free(p->items[i].key);
    memmove(&p->items[i], &p->items[i + 1], (--p->n - i) * sizeof p->items[0]);
}

static void item_add(struct peaks *p, const char *key, double flops) {
    if (p->n == PEAKS_MAX)
        item_remove(p, 0);
    Trainyard__V1__HostPeak *item = &p->items[p->n++];
    trainyard__v1__host_peak__init(item);
    item->key = alloc_copy_text(key);
    item->flops = flops;
}

static bool is_valid(const char *key, double flops) {
    return *key && strlen(key) < PEAK_KEY_BYTES && !strchr(key, '\n') && isfinite(flops) && flops > 0;
}

static void line_read(struct peaks *p, char *line) {
    char *key;
    const double flops = strtod(line, &key);
    if (*key == ' ' && is_valid(key + 1, flops))
        item_add(p, key + 1, flops);
}

struct peaks *peaks_open(const char *directory) {
    struct peaks *p = alloc_zeroed(1, sizeof *p);
    struct bytes text;
    p->path = alloc_format("%s/peaks", directory);
    for (size_t i = 0; i < PEAKS_MAX; i++)
        p->list[i] = &p->items[i];
    bytes_init(&text, FILE_BYTES);
    if (file_read(p->path, &text, NULL) == ST_OK && bytes_append(&text, "", 1, NULL) == ST_OK) {
        char *rest = text.data;
        for (char *line; (line = strsep(&rest, "\n"));)
            line_read(p, line);
    }
    bytes_done(&text);
    return p;
}

struct peaks *peaks_close(struct peaks *p) {
    while (p && p->n)
        item_remove(p, p->n - 1);
    if (p)
        free(p->path);
    free(p);
    return NULL;
}

static status_t write_all(const struct peaks *p, struct err *e) {
    struct bytes text;
    bytes_init(&text, FILE_BYTES);
    status_t st = ST_OK;
    for (size_t i = 0; i < p->n && st == ST_OK; i++)
        st = bytes_printf(&text, e, "%.4e %s\n", p->items[i].flops, p->items[i].key);
    if (st == ST_OK)
        st = file_write_atomic(p->path, text.data, text.len, 0644, e);
    bytes_done(&text);
    return st;
}

status_t peaks_add(struct peaks *p, const char *key, double flops, struct err *e) {
    size_t i = 0;
    while (i < p->n && strcmp(p->items[i].key, key) != 0)
        i++;
    if (!is_valid(key, flops) || (i < p->n && flops <= p->items[i].flops))
        return ST_OK;
    if (i < p->n)
        item_remove(p, i);
    item_add(p, key, flops);
    return write_all(p, e);
}

Trainyard__V1__HostPeak **peaks_list(const struct peaks *p, size_t *ret_n) {
    *ret_n = p->n;
    return (Trainyard__V1__HostPeak **)(uintptr_t)p->list;
}
