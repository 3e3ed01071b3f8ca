/* One object on its way from its store into the folder of parts. */
#ifndef EXECUTOR_DATA_TRANSFER_H
#define EXECUTOR_DATA_TRANSFER_H

#include "executor/data/object.h"
#include "executor/data/part.h"
#include "executor/data/peer.h"

#include <stdatomic.h>

struct transfer {
    struct data_object *object;
    const struct peer *peer; /* whose copy with the digest object->peer_sha256 is read; NULL: the store */
    struct part part;
    struct digest *digest; /* of the first `hashed` pieces; NULL: of none */
    int hashed;
    struct check check; /* what the digest is opened for */
};

/* Copies one piece, or the whole object if its server sends no parts, again and again as long as that can help;
 * from a peer once. Counts the bytes in *received. ABORTED: the object has changed. UNAVAILABLE with a peer: the
 * peer has failed. Several threads may copy different pieces. The caller marks the pieces as done. */
MUST_CHECK status_t transfer_piece(struct transfer *t, int piece, struct http *h, _Atomic int64_t *received,
                                   struct answer *answer, struct err *e);

/* Adds the next piece, whose bytes are there, to the digest. One thread at a time. */
MUST_CHECK status_t transfer_hash(struct transfer *t, struct err *e);

/* After the last piece: compares the digests with what the store and the peer say. *ret_good false: the bytes are
 * wrong. */
MUST_CHECK status_t transfer_finish(struct transfer *t, struct data_cache *c, bool *ret_good, struct err *e);

#endif
