#include "executor/engine/run/host_rooms.h"

#include "kernels/kernels.h"

#include <stdlib.h>
#include <string.h>

enum { BOUNDARY = 64 };

struct room {
    void *at;
    bool pinned;
};

struct host_rooms {
    const struct kernels *kernels;
    struct room *rooms;
    int n;
    size_t bytes, unpinned;
    bool refused; /* once: not asked again */
};

static size_t rounded(size_t bytes) { return (bytes + BOUNDARY - 1) / BOUNDARY * BOUNDARY; }

static status_t add_room(struct host_rooms *r, size_t bytes, struct err *e) {
    const struct kernels *k = r->kernels;
    struct room room = { .pinned = !r->refused };
    struct err why;
    status_t st = r->refused ? ST_RESOURCE_EXHAUSTED : k->host_memory_new(k, bytes, &room.at, &why);
    if (st == ST_RESOURCE_EXHAUSTED) {
        r->refused = true;
        room = (struct room){ .at = aligned_alloc(BOUNDARY, bytes) };
        if (!room.at)
            return err_set(e, st, "no %zu bytes of the host's memory behind %zu others", bytes, r->bytes);
        r->unpinned += bytes;
    } else if (st != ST_OK)
        return err_set(e, st, "%s", why.msg);
    memset(room.at, 0, bytes);
    r->bytes += bytes;
    r->rooms[r->n++] = room;
    return ST_OK;
}

status_t host_rooms_new(const struct kernels *kernels, const size_t *bytes, int n, size_t room_bytes,
                        void (*progress)(void *ctx), void *ctx, void **data, struct host_rooms **ret, struct err *e) {
    CLEANUP(host_rooms_freep) struct host_rooms *r = calloc(1, sizeof *r);
    if (!r || !(r->rooms = calloc((size_t)n + 1, sizeof *r->rooms)))
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a list of %d arrays", n);
    r->kernels = kernels;
    for (int first = 0, end; first < n; first = end) {
        size_t room = rounded(bytes[first]);
        for (end = first + 1; end < n && room + rounded(bytes[end]) <= room_bytes; end++)
            room += rounded(bytes[end]);
        TRY(add_room(r, room > 0 ? room : BOUNDARY, e));
        char *at = r->rooms[r->n - 1].at;
        for (int i = first; i < end; i++) {
            data[i] = at;
            at += rounded(bytes[i]);
        }
        progress(ctx);
    }
    *ret = take_ptr(&r);
    return ST_OK;
}

struct host_rooms *host_rooms_free(struct host_rooms *r) {
    if (!r)
        return NULL;
    for (int i = 0; i < r->n; i++)
        if (r->rooms[i].pinned)
            r->kernels->host_memory_free(r->kernels, r->rooms[i].at);
        else
            free(r->rooms[i].at);
    free(r->rooms);
    free(r);
    return NULL;
}

size_t host_rooms_bytes(const struct host_rooms *r) { return r->bytes; }
size_t host_rooms_unpinned(const struct host_rooms *r) { return r->unpinned; }
