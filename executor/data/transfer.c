/* A piece that breaks off is continued where it broke off. The patience begins anew when something came, but not for an
 * object without parts, of which each try is the whole: there the number of tries is the limit. */
#include "executor/data/transfer.h"

#include "base/alloc.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

enum { RENEW_BYTES = 64 << 10, WHOLE_TRIES = 5, HASH_BYTES = 1 << 20 };

struct sink {
    int file;
    int64_t offset; /* of what comes next */
    _Atomic int64_t *received;
    status_t st; /* of the disk */
};

static status_t sink_write(void *ctx, const void *data, size_t n, struct err *e) {
    struct sink *s = ctx;
    for (size_t done = 0; done < n;) {
        const ssize_t written = pwrite(s->file, (const char *)data + done, n - done, s->offset + (int64_t)done);
        if (written < 0 && errno != EINTR)
            return s->st = data_cache_fail(e, "write to", "a part");
        done += written > 0 ? (size_t)written : 0;
    }
    s->offset += (int64_t)n;
    atomic_fetch_add(s->received, (int64_t)n);
    return ST_OK;
}

static struct http_request request_of(const struct data_object *o, int64_t from, int64_t bytes, struct sink *sink) {
    return (struct http_request){ .store = o->store,
                                  .name = o->name,
                                  .url = o->url,
                                  .etag = o->is_fixed ? NULL : o->etag,
                                  .modified = o->is_fixed ? NULL : o->modified,
                                  .from = from,
                                  .bytes = bytes,
                                  .total = o->bytes,
                                  .write = sink_write,
                                  .ctx = sink };
}

static status_t copy_part(struct transfer *t, int64_t to, struct http *h, struct sink *sink, struct answer *answer,
                          struct err *e) {
    struct http_patience patience;
    http_patience_init(&patience, t->object->store);
    while (sink->offset < to) {
        const int64_t before = sink->offset;
        const struct http_request request = request_of(t->object, sink->offset, to - sink->offset, sink);
        struct err why = { "" };
        status_t st = http_try(h, &request, answer, &why);
        if (st == ST_OK)
            continue;
        if (sink->offset - before >= RENEW_BYTES)
            http_patience_renew(&patience);
        st = http_patience_wait(&patience, st, answer, &why);
        if (st != ST_OK)
            return err_set(e, st, "%s", why.msg);
    }
    return ST_OK;
}

static status_t copy_whole(struct transfer *t, struct http *h, struct sink *sink, struct answer *answer,
                           struct err *e) {
    struct http_patience patience;
    http_patience_init(&patience, t->object->store);
    for (int i = 0;; i++) {
        struct err why = { "" };
        atomic_fetch_sub(sink->received, sink->offset);
        sink->offset = 0;
        const struct http_request request = request_of(t->object, 0, t->object->bytes, sink);
        status_t st = http_try(h, &request, answer, &why);
        if (st == ST_OK)
            return ST_OK;
        if (sink->offset >= RENEW_BYTES && i < WHOLE_TRIES)
            http_patience_renew(&patience);
        st = http_patience_wait(&patience, st, answer, &why);
        if (st != ST_OK)
            return err_set(e, st, "%s", why.msg);
    }
}

/* Whatever is wrong with the peer, the object can be had elsewhere. */
static status_t copy_from_peer(const struct transfer *t, int64_t bytes, struct http *h, struct sink *sink,
                               struct answer *answer, struct err *e) {
    char etag[SHA256_HEX + 2];
    CLEANUP(freep) char *url = alloc_format("%s/objects/%s", t->peer->store.endpoint, t->object->peer_sha256);
    struct http_request request = request_of(t->object, sink->offset, bytes, sink);
    snprintf(etag, sizeof etag, "\"%s\"", t->object->peer_sha256);
    request.store = &t->peer->store;
    request.url = url;
    request.etag = etag;
    request.modified = NULL;
    const status_t st = http_try(h, &request, answer, e);
    return st == ST_OK || sink->st != ST_OK || st == ST_CANCELLED ? st : ST_UNAVAILABLE;
}

status_t transfer_piece(struct transfer *t, int piece, struct http *h, _Atomic int64_t *received, struct answer *answer,
                        struct err *e) {
    const struct part *p = &t->part;
    const int64_t from = part_offset(piece);
    struct sink sink = { .file = p->file, .offset = from, .received = received };
    if (t->peer)
        return copy_from_peer(t, part_piece_bytes(p, piece), h, &sink, answer, e);
    if (!t->object->whole)
        return copy_part(t, from + part_piece_bytes(p, piece), h, &sink, answer, e);
    sink.offset = 0;
    return copy_whole(t, h, &sink, answer, e);
}

status_t transfer_hash(struct transfer *t, struct err *e) {
    CLEANUP(freep) char *buffer = malloc(HASH_BYTES);
    if (!buffer)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for %d bytes", HASH_BYTES);
    if (!t->digest)
        TRY(digest_open(t->check.kind, t->part.bytes, &t->digest, e));
    const int64_t from = part_offset(t->hashed), end = from + part_piece_bytes(&t->part, t->hashed);
    for (int64_t at = from; at < end;) {
        const size_t want = end - at < HASH_BYTES ? (size_t)(end - at) : HASH_BYTES;
        const ssize_t n = pread(t->part.file, buffer, want, at);
        if (n == 0)
            errno = EIO;
        if (n <= 0)
            return data_cache_fail(e, "read", "a part");
        digest_update(t->digest, buffer, (size_t)n);
        at += n;
    }
    t->hashed++;
    return ST_OK;
}

status_t transfer_finish(struct transfer *t, struct data_cache *c, bool *ret_good, struct err *e) {
    struct data_object *o = t->object;
    char sha256[SHA256_HEX];
    if (!t->digest)
        TRY(digest_open(t->check.kind, t->part.bytes, &t->digest, e));
    digest_final(t->digest, &t->check, sha256, ret_good);
    if (t->peer)
        *ret_good = *ret_good && strcmp(sha256, o->peer_sha256) == 0;
    if (!*ret_good)
        return ST_OK;
    TRY(part_complete(&t->part, e));
    TRY(data_cache_publish(c, o->key, t->part.file, sha256, o->bytes, e));
    memcpy(o->sha256, sha256, SHA256_HEX);
    return ST_OK;
}
