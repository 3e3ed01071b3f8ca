/* The bytes of one family that hold something that is still needed: disjoint, sorted ranges. A serial number
 * distinguishes two contents of the same bytes. O(log n) to find, O(n) to insert. */
#ifndef ENGINE_PLAN_VERIFY_LIVE_SET_H
#define ENGINE_PLAN_VERIFY_LIVE_SET_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct live_range {
    size_t begin, end;
    uint32_t serial;
    int owner;     /* what lives there, as the set's user counts it */
    int transfers; /* transfers that read or write it just now */
};

struct live_set {
    struct live_range *at;
    int n;
    uint32_t serial; /* the last one given out */
};

void live_set_done(struct live_set *s);
/* The first range that shares a byte with [begin, end), or NULL. Valid until the next change. */
struct live_range *live_set_find(const struct live_set *s, size_t begin, size_t end);
/* The range that holds all of [begin, end), or NULL. */
struct live_range *live_set_around(const struct live_set *s, size_t begin, size_t end);
/* Forgets every range that shares a byte with [begin, end). */
void live_set_remove(struct live_set *s, size_t begin, size_t end);
/* Nothing may overlap: remove it before. */
MUST_CHECK status_t live_set_insert(struct live_set *s, size_t begin, size_t end, int owner, struct err *e);

#endif
