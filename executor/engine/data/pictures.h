/* The pictures of a folder as pixels of one shape. Where all of them fit in PICTURES_CACHE_BYTES they are decoded once,
 * while they are opened, on `threads` threads, and a broken one is told at once; else each is decoded whenever it is
 * read. Any number of threads may read. Private to this folder. */
#ifndef EXECUTOR_ENGINE_DATA_PICTURES_H
#define EXECUTOR_ENGINE_DATA_PICTURES_H

#include "base/sha256.h"
#include "executor/engine/data/folder.h"
#include "executor/engine/data/picture.h"

#define PICTURES_CACHE_BYTES ((int64_t)512 << 20)

struct pictures;

/* Takes the folder's files over when it succeeds. size: pixels a side; channels: 1 or 3. Errors name the file. */
MUST_CHECK status_t pictures_open(struct folder *folder, int size, int channels, const struct source_options *options,
                                  struct pictures **ret, struct err *e);
struct pictures *pictures_close(struct pictures *p);
CLEANUP_DEFINE(struct pictures *, pictures_close)

const struct folder *pictures_folder(const struct pictures *p);

enum { PICTURES_READERS = 4 }; /* threads of a loader when every picture is decoded as it is read */

/* Bytes of room that pictures_read needs: one picture's, 0 when all are in the cache. */
size_t pictures_room(const struct pictures *p);

/* The pixels (size, size, channels) of picture i: in the cache, or in `room`. */
MUST_CHECK status_t pictures_read(const struct pictures *p, int64_t i, uint8_t *room, const uint8_t **ret,
                                  struct err *e);

/* The shorter side of the picture of a folder's first file. */
MUST_CHECK status_t pictures_side(const struct folder *folder, int *ret, struct err *e);

/* A digest of n sets (NULL = none) in order, hex: names, labels, lengths, and of a set of at most 1 GiB the bytes. */
MUST_CHECK status_t pictures_digest(struct pictures *const *sets, int n, char ret[SHA256_HEX], struct err *e);

#endif
