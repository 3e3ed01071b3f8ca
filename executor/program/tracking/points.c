/* Names are kept in a hash table with open addressing and a fixed size. An entry records whether the metric has a step
 * above 0, and how many points without a step it has.
 *
 * A row collects points while they have one step and different names. It refers to the entries' names, which do not
 * move. Another step, a name that the row has, or a full row sends it. The entry of a name has the number of the row
 * that last used it, so that a repeated name is found without a search. */
#include "executor/program/tracking/points.h"

#include "base/alloc.h"
#include "base/crc32c.h"
#include "base/limits.h"
#include "base/utf8.h"
#include "tracking/metric_name.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    SLOTS = 2048, /* a power of two, and twice POINTS_NAMES */
    KINDS = 16,
    WHOLE_BYTES = 512, /* of a name with its prefix; the rest is ignored */
};

struct entry {
    char name[LIMIT_METRIC_NAME_BYTES + 1]; /* empty: the slot is free */
    uint64_t row;                           /* the last one with this name */
    const char *source;                     /* the first one */
    bool shared;                            /* another source has the name, too */
    int64_t unnumbered;
    bool numbered;
};

struct kind {
    const char *name;
    int sent;
};

struct points {
    struct points_sink sink;
    const char *source;
    struct entry entries[SLOTS];
    size_t n_entries;
    int64_t without_entry; /* points that were not stored */
    struct kind kinds[KINDS];
    uint64_t row; /* number of the open row, from 1 on */
    int64_t step;
    size_t n;
    char *names[POINTS_ROW];
    double values[POINTS_ROW];
};

struct points *points_new(const struct points_sink *sink) {
    struct points *p = alloc_zeroed(1, sizeof *p);
    p->sink = *sink;
    p->row = 1;
    p->source = "the program";
    return p;
}

struct points *points_free(struct points *p) {
    free(p);
    return NULL;
}

/* ---- events ---- */

static struct kind *kind_find(struct points *p, const char *name) {
    size_t i = 0;
    while (i < KINDS - 1 && p->kinds[i].name && strcmp(p->kinds[i].name, name) != 0)
        i++;
    p->kinds[i].name = name;
    return &p->kinds[i];
}

void points_event(struct points *p, const char *name, const char *fmt, ...) {
    char text[POINTS_EVENT_BYTES], printable[POINTS_EVENT_BYTES];
    struct kind *kind = kind_find(p, name);
    if (kind->sent > POINTS_EVENTS_PER_KIND)
        return;
    if (kind->sent++ == POINTS_EVENTS_PER_KIND) {
        p->sink.event(p->sink.ctx, name, "further events of this kind are not reported");
        return;
    }
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    utf8_copy_printable(text, printable, sizeof printable);
    p->sink.event(p->sink.ctx, name, printable);
}

/* ---- names ---- */

void points_from(struct points *p, const char *source) { p->source = source; }

/* Whether the metric belongs to the present source. */
static bool entry_own(struct points *p, struct entry *entry) {
    if (strcmp(entry->source, p->source) == 0)
        return true;
    if (!entry->shared)
        points_event(p, "metric_ignored",
                     "the metric '%s' is stored as %s reports it: the same name from %s is ignored", entry->name,
                     entry->source, p->source);
    entry->shared = true;
    return false;
}

/* NULL: the rank has too many metrics, or the metric belongs to another source. */
static struct entry *entry_get(struct points *p, const char *prefix, const char *name) {
    char whole[WHOLE_BYTES], stored[LIMIT_METRIC_NAME_BYTES + 1];
    snprintf(whole, sizeof whole, "%s%s", prefix, name);
    const bool changed = metric_name_make(whole, stored);
    size_t at = crc32c(0, stored, strlen(stored)) % SLOTS;
    while (*p->entries[at].name && strcmp(p->entries[at].name, stored) != 0)
        at = (at + 1) % SLOTS;
    struct entry *entry = &p->entries[at];
    if (*entry->name)
        return entry_own(p, entry) ? entry : NULL;
    if (p->n_entries == POINTS_NAMES || !*stored) {
        if (p->without_entry++ == 0)
            points_event(p, "metric_refused", "the metric '%.80s' is not stored: %s", whole,
                         *stored ? "the rank already has 960 metrics" : "it has no name");
        return NULL;
    }
    p->n_entries++;
    strcpy(entry->name, stored);
    entry->source = p->source;
    if (changed)
        points_event(p, "metric_renamed", "the metric '%.200s' is stored as '%s'", whole, stored);
    return entry;
}

/* ---- rows ---- */

void points_flush(struct points *p) {
    if (p->n > 0)
        p->sink.row(p->sink.ctx, p->step, p->names, p->values, p->n);
    p->n = 0;
    p->row++;
}

static void entry_put(struct points *p, struct entry *entry, int64_t step, double value) {
    if (p->n == POINTS_ROW || (p->n > 0 && step != p->step) || entry->row == p->row)
        points_flush(p);
    entry->row = p->row;
    p->step = step;
    p->names[p->n] = entry->name;
    p->values[p->n++] = value;
}

void points_add(struct points *p, const char *prefix, const char *name, int64_t step, double value) {
    if (step < 0 || step > POINTS_STEP_MAX) {
        points_event(p, "metric_refused", "a point of '%.80s' is not stored: its step, %" PRId64 ", is %s", name, step,
                     step < 0 ? "below 0" : "above 2^53");
        return;
    }
    struct entry *entry = entry_get(p, prefix, name);
    if (!entry)
        return;
    entry->numbered |= step > 0;
    entry_put(p, entry, step, value);
}

void points_add_unnumbered(struct points *p, const char *prefix, const char *name, double value) {
    struct entry *entry = entry_get(p, prefix, name);
    if (entry)
        entry_put(p, entry, entry->numbered ? 0 : entry->unnumbered++, value);
}

void points_end(struct points *p) {
    points_flush(p);
    if (p->without_entry > 1)
        points_event(p, "metric_refused", "%" PRId64 " points of further metrics were not stored", p->without_entry);
    p->without_entry = 0;
}
