/* HTTP requests to stores, by libcurl: one at a time on one connection, which is kept between requests. */
#ifndef EXECUTOR_DATA_HTTP_H
#define EXECUTOR_DATA_HTTP_H

#include "executor/data/answer.h"
#include "executor/data/store.h"

struct http_request {
    const struct store *store;
    const char *name; /* of the object, for sentences, which contain it up to a '?' */
    const char *url;
    bool head;
    bool first_byte;      /* GET of the first byte alone, in place of HEAD */
    bool no_redirect;     /* an answer of 3xx is taken as it is */
    const char *etag;     /* the object must still have it; NULL: any */
    const char *modified; /* in place of an ETag: it must still have this Last-Modified; NULL: any */
    /* The bytes [from, from + bytes) of the object of `total` bytes, which go to `write` in order. Without `write` the
     * whole body goes to the answer. */
    int64_t from, bytes, total;
    status_t (*write)(void *ctx, const void *data, size_t n, struct err *e);
    void *ctx;
    /* PUT, POST or DELETE, for s3; NULL: GET, or HEAD. PUT and POST send the whole body, whose SHA-256 is given as
     * hexadecimal digits, with one more header or NULL. */
    const char *method, *body, *body_sha256, *header;
    size_t body_bytes;
};

struct http;
MUST_CHECK status_t http_open(struct http **ret, struct err *e);
struct http *http_close(struct http *h); /* returns NULL */
CLEANUP_DEFINE(struct http *, http_close)

/* One request. OK: the status is 2xx, all bytes have come, and they are of the object that was asked for; with
 * no_redirect also 3xx. Else:
 *
 *   UNAVAILABLE          no answer, a torn or a slow one, or a status after which a repetition can help
 *   NOT_FOUND            404, 410
 *   PERMISSION_DENIED    401, 403
 *   ABORTED              the object has changed
 *   INVALID_ARGUMENT     any other refusal
 *   INTERNAL             what only this host can change: certificates, memory
 *   CANCELLED            the store's `end` is set
 *   others               as `write` returned
 *
 * `ret` must be initialised; it has what came, in any case. */
MUST_CHECK status_t http_try(struct http *h, const struct http_request *request, struct answer *ret, struct err *e);

/* How long to go on. A pause is 0.2 s at first, and doubles up to 10 s; or as the server asks (Retry-After), up to a
 * minute. */
struct http_patience {
    const struct store *store;
    int64_t end_ms, pause_ms, since_ms;
    int tries;
};
void http_patience_init(struct http_patience *p, const struct store *store);
/* Something was received: all begins anew. */
void http_patience_renew(struct http_patience *p);
/* After a failure with the status `failed`. OK: a pause is over, try again. Else the failure is final. */
MUST_CHECK status_t http_patience_wait(struct http_patience *p, status_t failed, const struct answer *answer,
                                       struct err *e);

/* Repeats the request as long as that can help. */
MUST_CHECK status_t http_do(struct http *h, const struct http_request *request, struct answer *ret, struct err *e);

#endif
