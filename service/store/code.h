/* Archives of program code: tar files by their SHA-256, in chunks.
 *
 * An archive is begun by its first chunk. It is complete after store_code_complete, which the caller calls when it has
 * compared the bytes of all chunks with the SHA-256. A job refers to a complete archive from its creation until it is
 * deleted; store_code_collect deletes archives that no job refers to. The sum of all archives, begun ones included, has
 * a limit. */
#ifndef SERVICE_STORE_CODE_H
#define SERVICE_STORE_CODE_H

#include "service/store/store.h"

#include <stdbool.h>
#include <stddef.h>

/* An archive that no job refers to is deleted when it was not used for this long: not uploaded, asked for or submitted.
 * The time of a use is stored at most once in STORE_CODE_USE_MINUTES. */
#define STORE_CODE_KEEP_HOURS         24
#define STORE_CODE_UNFINISHED_MINUTES 60
#define STORE_CODE_USE_MINUTES        10
#define STORE_CODE_DIGEST             32 /* bytes */

struct store_code {
    int64_t bytes; /* 0: nothing is stored */
    bool complete;
    int next_chunk; /* the first one that is missing; if none is missing, the number of chunks */
    int chunks;
};

/* Reads an archive and stores that it is in use. */
MUST_CHECK status_t store_code_get(struct store *s, int64_t epoch, const uint8_t *archive, struct store_code *ret,
                                   struct err *e);

struct store_code_put {
    const uint8_t *archive; /* [STORE_CODE_DIGEST] */
    int64_t bytes;          /* of the archive */
    int64_t total_bytes;    /* the limit for all archives */
    int chunk;
    const void *data;
    size_t n; /* of the chunk: LIMIT_CODE_CHUNK_BYTES, or the rest for the last chunk */
};
/* Stores a chunk; does nothing if it is stored already, or if the archive is complete. INVALID_ARGUMENT: the chunk has
 * the wrong size, or the archive was begun with another size. RESOURCE_EXHAUSTED: the limit. */
MUST_CHECK status_t store_code_put(struct store *s, int64_t epoch, const struct store_code_put *put,
                                   struct store_code *ret, struct err *e);

struct store_code_chunk {
    int64_t bytes; /* of the archive */
    bool complete; /* the archive */
    const void *data;
    size_t n;
    int64_t crc32c; /* of the data, as it was stored */
};
/* NOT_FOUND: the chunk is not stored. */
MUST_CHECK status_t store_code_chunk(struct store *s, struct store_memory *m, const uint8_t *archive, int chunk,
                                     struct store_code_chunk *ret, struct err *e);

/* ABORTED: a chunk is missing. */
MUST_CHECK status_t store_code_complete(struct store *s, int64_t epoch, const uint8_t *archive, struct err *e);
/* Drops all chunks, because their bytes are wrong. The archive can be uploaded again. */
MUST_CHECK status_t store_code_drop(struct store *s, int64_t epoch, const uint8_t *archive, struct err *e);
/* The same for an upload whose chunks are wrong. ABORTED: the archive is complete, because another upload has ended
 * meanwhile, or it is gone; nothing is dropped. */
MUST_CHECK status_t store_code_restart(struct store *s, int64_t epoch, const uint8_t *archive, struct err *e);

/* Deletes one archive that no job refers to and that was not used for long; false: there is none. */
MUST_CHECK status_t store_code_collect(struct store *s, int64_t epoch, bool *ret_deleted, struct err *e);

/* The sum of the sizes of all archives. */
MUST_CHECK status_t store_code_total(struct store *s, int64_t *ret, struct err *e);

#endif
