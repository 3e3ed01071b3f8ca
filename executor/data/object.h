/* The objects of an order. */
#ifndef EXECUTOR_DATA_OBJECT_H
#define EXECUTOR_DATA_OBJECT_H

#include "executor/data/cache.h"
#include "executor/data/check.h"
#include "executor/data/http.h"

struct peer;

struct data_object {
    int uri; /* the index in the order */
    const struct store *store;
    char *path; /* decoded, which is the order of the objects of an URI */
    char *name, *url;
    bool is_known; /* the next five, from a listing or from the object's headers */
    int64_t bytes;
    char *etag;     /* NULL: none */
    char *modified; /* NULL, unless it is used in place of an ETag */
    struct check check;
    bool whole;              /* its server sends no parts of it */
    bool is_listed;          /* a listing has not said which checksums it has */
    bool is_fixed;           /* of a commit of hf: it cannot change */
    char key[SHA256_HEX];    /* in the cache: what it is, and its version */
    char sha256[SHA256_HEX]; /* of the copy, once it is there */
    bool is_cached;          /* the cache had it */
    /* For peer.h: the peers that have it, a bit each, with this digest; the one that is to send it; the one to which it
     * belongs, or -1; and whether one has failed to send it. */
    uint32_t peers;
    char peer_sha256[SHA256_HEX];
    struct peer *peer;
    int peer_owner;
    bool has_no_peer;
};

struct data_objects {
    struct data_object *items;
    int n;
};
void data_objects_done(struct data_objects *objects);

/* Computes the key. The object is known, or fixed. */
void data_object_set_key(struct data_object *o);
/* Asks the store for size and version. ABORTED and others as http_do. */
MUST_CHECK status_t data_object_ask(struct data_object *o, struct http *h, struct err *e);

#endif
