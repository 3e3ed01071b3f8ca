/* Parameters, tags and texts of a tracker's client, as events: "lr=0.1, batch_size=32". Items that arrive together
 * become one event. The number of events is bounded by points_event, and the text of an item is cut.
 *
 * One thread. */
#ifndef EXECUTOR_PROGRAM_TRACKING_NOTES_H
#define EXECUTOR_PROGRAM_TRACKING_NOTES_H

#include "executor/program/tracking/points.h"

enum { NOTES_ITEM_BYTES = 240 };

struct notes {
    const char *kind; /* of the events: a literal */
    char text[POINTS_EVENT_BYTES];
    size_t n;
};

/* prefix: as of a metric. An item that does not fit any more sends the others first. */
void notes_add(struct notes *notes, struct points *points, const char *prefix, const char *name, const char *value);
/* Sends what has been collected. */
void notes_flush(struct notes *notes, struct points *points);

#endif
