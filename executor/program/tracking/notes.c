#include "executor/program/tracking/notes.h"

#include <stdio.h>
#include <string.h>

void notes_flush(struct notes *notes, struct points *points) {
    if (notes->n > 0)
        points_event(points, notes->kind, "%s", notes->text);
    notes->n = 0;
}

void notes_add(struct notes *notes, struct points *points, const char *prefix, const char *name, const char *value) {
    char item[NOTES_ITEM_BYTES];
    snprintf(item, sizeof item, "%s%.100s=%s", prefix, name, value);
    const size_t n = strlen(item);
    if (notes->n + n + 3 > sizeof notes->text)
        notes_flush(notes, points);
    notes->n += (size_t)snprintf(notes->text + notes->n, sizeof notes->text - notes->n, "%s%s", notes->n ? ", " : "",
                                 item);
}
