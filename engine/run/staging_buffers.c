#include "engine/run/staging_buffers.h"

#include "base/alloc.h"
#include "kernels/kernels.h"

#include <stdlib.h>
#include <string.h>

enum { BOUNDARY = 64 };

struct buffer {
    void *at;
    bool pinned;
};

struct staging_buffers {
    const struct kernels *kernels;
    struct buffer *buffers;
    int n;
    size_t bytes, unpinned;
    bool refused; /* the system pins no more: not tried again */
};

static size_t rounded(size_t bytes) { return (bytes + BOUNDARY - 1) / BOUNDARY * BOUNDARY; }

static status_t add_buffer(struct staging_buffers *s, size_t bytes, struct err *e) {
    const struct kernels *k = s->kernels;
    struct buffer buffer = { .pinned = !s->refused };
    struct err why;
    status_t st = s->refused ? ST_RESOURCE_EXHAUSTED : k->host_memory_new(k, bytes, &buffer.at, &why);
    if (st == ST_RESOURCE_EXHAUSTED) {
        s->refused = true;
        buffer = (struct buffer){ .at = aligned_alloc(BOUNDARY, bytes) };
        if (!buffer.at)
            return err_set(e, st, "no memory for %zu bytes after %zu others", bytes, s->bytes);
        s->unpinned += bytes;
    } else if (st != ST_OK)
        return err_set(e, st, "%s", why.msg);
    memset(buffer.at, 0, bytes);
    s->bytes += bytes;
    s->buffers[s->n++] = buffer;
    return ST_OK;
}

status_t staging_buffers_new(const struct kernels *kernels, const size_t *bytes, int n, size_t buffer_bytes,
                             void (*progress)(void *ctx), void *ctx, void **data, struct staging_buffers **ret,
                             struct err *e) {
    CLEANUP(staging_buffers_freep) struct staging_buffers *s = alloc_zeroed(1, sizeof *s);
    s->buffers = alloc_zeroed((size_t)n + 1, sizeof *s->buffers);
    s->kernels = kernels;
    for (int first = 0, end; first < n; first = end) {
        size_t total = rounded(bytes[first]);
        for (end = first + 1; end < n && total + rounded(bytes[end]) <= buffer_bytes; end++)
            total += rounded(bytes[end]);
        TRY(add_buffer(s, total > 0 ? total : BOUNDARY, e));
        char *at = s->buffers[s->n - 1].at;
        for (int i = first; i < end; i++) {
            data[i] = at;
            at += rounded(bytes[i]);
        }
        progress(ctx);
    }
    *ret = take_ptr(&s);
    return ST_OK;
}

struct staging_buffers *staging_buffers_free(struct staging_buffers *s) {
    if (!s)
        return NULL;
    for (int i = 0; i < s->n; i++)
        if (s->buffers[i].pinned)
            s->kernels->host_memory_free(s->kernels, s->buffers[i].at);
        else
            free(s->buffers[i].at);
    free(s->buffers);
    free(s);
    return NULL;
}

size_t staging_buffers_bytes(const struct staging_buffers *s) { return s->bytes; }
size_t staging_buffers_unpinned_bytes(const struct staging_buffers *s) { return s->unpinned; }
