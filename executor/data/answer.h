/* What an HTTP server says in its headers and, if it refuses a request, in its body. */
#ifndef EXECUTOR_DATA_ANSWER_H
#define EXECUTOR_DATA_ANSWER_H

#include "base/bytes.h"
#include "executor/data/check.h"

enum { ANSWER_TAG_BYTES = 256, ANSWER_LINK_BYTES = 2048, ANSWER_COMMIT_BYTES = 41, ANSWER_BODY_MAX = 16 << 20 };

struct answer {
    long status;                        /* 0: none came */
    int64_t length;                     /* of the body; -1: not said */
    int64_t range_from, range_total;    /* of Content-Range; -1 */
    bool ranges;                        /* parts can be asked for */
    char etag[ANSWER_TAG_BYTES];        /* with its quotes; empty: none, or a weak one */
    char modified[64];                  /* Last-Modified; empty: none */
    int64_t retry_after_ms;             /* 0: not said */
    struct check check;                 /* of the whole object, if the answer is about all of it */
    bool encrypted;                     /* the ETag is not an MD5 */
    char commit[ANSWER_COMMIT_BYTES];   /* hf: X-Repo-Commit */
    char linked_etag[ANSWER_TAG_BYTES]; /* hf: the SHA-256 of an object in LFS */
    int64_t linked_bytes;               /* hf; -1 */
    char region[64];                    /* s3: where the bucket is */
    char next[ANSWER_LINK_BYTES];       /* the next page */
    struct bytes body;                  /* unless it was written elsewhere */
};

void answer_init(struct answer *a);
void answer_done(struct answer *a);
void answer_clear(struct answer *a); /* before another request */

/* One line of the headers, with its line end or without; a status line forgets the headers before it. Lines without a
 * meaning here, or of a wrong form, change nothing. */
void answer_header(struct answer *a, const char *line, size_t n);

/* What the server says about its refusal, printable and short; empty: nothing. */
enum { ANSWER_MESSAGE_BYTES = 200 };
void answer_message(const struct answer *a, char ret[ANSWER_MESSAGE_BYTES]);

#endif
