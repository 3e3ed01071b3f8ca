/* Hints for an unknown field name. The first of these that applies is used:
 *
 *   1. the nearest field name of the same message, by edit distance
 *   2. the advice of the caller
 *   3. the paths of other fields of the whole message that have this name, or whose name contains it
 *   4. the names of all fields of the message, if there are few */
#include "api/codec/field_option.h"
#include "api/codec/message.h"
#include "api/codec/parse.h"

#include <stdio.h>
#include <string.h>

enum {
    NAME_BYTES = 64,
    EDITED_BYTES = 32, /* longer names are not compared */
    MAX_LISTED = 14,   /* a message with more fields gets no list */
    MAX_PLACES = 3,
    MIN_PART_BYTES = 4, /* the shortest name that is searched inside other names */
    MAX_DEPTH = 8,
};

/* The number of edits (insert, delete, change, exchange of neighbours) from a to b. Both are shorter than
 * EDITED_BYTES. */
static int edit_distance(const char *a, size_t na, const char *b, size_t nb) {
    int d[EDITED_BYTES][EDITED_BYTES];
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
    for (unsigned i = 0; i < desc->n_fields && n < EDITED_BYTES; i++) {
        const char *known = desc->fields[i].name;
        if (field_mapped(desc, &desc->fields[i]))
            continue;
        size_t nk = strlen(known);
        int distance = nk < EDITED_BYTES ? edit_distance(name, n, known, nk) : best_distance;
        if (distance < best_distance) {
            best_distance = distance;
            best = known;
        }
    }
    return best;
}

/* --- the same name in another place ---*/

struct places {
    const char *name;
    bool part; /* the word also matches inside a longer name */
    char text[200];
    size_t used;
    int n;
};

static void add_place(struct places *all, const char *path) {
    if (all->n++ < MAX_PLACES && all->used < sizeof all->text)
        all->used += (size_t)snprintf(all->text + all->used, sizeof all->text - all->used, "%s%s",
                                      all->n > 1 ? " or " : "", path);
}

/* Visits all messages below desc, except lists and timestamps. The depth is limited, because message types can be
 * recursive. */
static void find_places(struct places *all, const ProtobufCMessageDescriptor *desc, const char *path, int depth) {
    for (unsigned i = 0; i < desc->n_fields && depth < MAX_DEPTH; i++) {
        const ProtobufCFieldDescriptor *f = &desc->fields[i];
        char below[160];
        if (field_mapped(desc, f))
            continue;
        snprintf(below, sizeof below, "%s%s%s", path, *path ? "." : "", f->name);
        if (all->part ? strstr(f->name, all->name) != NULL : strcmp(f->name, all->name) == 0)
            add_place(all, below);
        if (f->type == PROTOBUF_C_TYPE_MESSAGE && !field_is_repeated(f) && !field_is_timestamp(f))
            find_places(all, f->descriptor, below, depth + 1);
    }
}

/* --- names ---*/

static void list_names(const ProtobufCMessageDescriptor *desc, char *ret, size_t cap) {
    size_t used = (size_t)snprintf(ret, cap, "known here: ");
    for (unsigned i = 0; i < desc->n_fields && used < cap; i++) {
        if (field_mapped(desc, &desc->fields[i]))
            continue;
        used += (size_t)snprintf(ret + used, cap - used, "%s%s", i ? ", " : "", desc->fields[i].name);
    }
}

void field_hint(const ProtobufCMessageDescriptor *desc, const char *name, size_t n, const struct field_path *p,
                char *ret, size_t cap) {
    char word[NAME_BYTES] = "";
    if (n < sizeof word)
        memcpy(word, name, n);
    const char *similar = nearest_name(desc, name, n);
    const char *advice = !similar && p->advice && *word ? p->advice(word) : NULL;
    struct places places = { .name = word };
    if (!advice && !similar && p->root && *word)
        find_places(&places, p->root, "", 0);
    if (!advice && !similar && p->root && places.n == 0 && strlen(word) >= MIN_PART_BYTES) {
        places.part = true;
        find_places(&places, p->root, "", 0);
    }
    if (similar)
        snprintf(ret, cap, "did you mean %s?", similar);
    else if (advice)
        snprintf(ret, cap, "%s", advice);
    else if (places.n > 0 && places.n <= MAX_PLACES)
        snprintf(ret, cap, "did you mean %s?", places.text);
    else if (desc->n_fields > MAX_LISTED)
        snprintf(ret, cap, "no field has a similar name");
    else
        list_names(desc, ret, cap);
}
