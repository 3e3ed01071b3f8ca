/* The images of a folder as pixels of one shape. If all of them fit in IMAGE_SET_CACHE_BYTES, they are decoded once,
 * when the set is opened, on `threads` threads, and a damaged file is an error of the open. Else each is decoded
 * whenever it is read, and always if another part of it is read each time. Any number of threads may read. Private to
 * this folder. */
#ifndef ENGINE_DATA_IMAGE_SET_H
#define ENGINE_DATA_IMAGE_SET_H

#include "base/sha256.h"
#include "engine/data/image_files.h"
#include "engine/data/image_view.h"

#define IMAGE_SET_CACHE_BYTES ((int64_t)512 << 20)

struct image_set;

struct image_format {
    int size;     /* pixels of a side */
    int shorter;  /* to which the shorter side is scaled, before the middle is cut out; at least size */
    int channels; /* 1 or 3 */
    bool parts;   /* image_set_crop is called, instead of image_set_read */
};

/* Owns `folder` if it succeeds. Errors name the file. */
MUST_CHECK status_t image_set_open(struct image_files *folder, const struct image_format *format,
                                   const struct source_options *options, struct image_set **ret, struct err *e);
struct image_set *image_set_close(struct image_set *p);
CLEANUP_DEFINE(struct image_set *, image_set_close)

const struct image_files *image_set_files(const struct image_set *p);

enum { IMAGE_SET_READERS = 4 }; /* threads of a loader if images are decoded when they are read */

/* Of memory: the pixels in the cache, and the list of files. NULL: 0. */
size_t image_set_bytes(const struct image_set *p);

/* Bytes of the buffer for the next two functions: one image's, or 0 if all are in the cache. */
size_t image_set_buffer_bytes(const struct image_set *p);

/* The pixels (size, size, channels) of image i: in the cache, or in `buffer`. */
MUST_CHECK status_t image_set_read(const struct image_set *p, int64_t i, uint8_t *buffer, const uint8_t **ret,
                                   struct err *e);

/* The pixels (size, size, channels) of the part of image i that a training sample shows (image_crop.h). */
MUST_CHECK status_t image_set_crop(const struct image_set *p, int64_t i, const struct data_resized_crop *crop,
                                   int64_t seed, int64_t sample, uint8_t *buffer, struct err *e);

/* The shorter side of the first image, in pixels. */
MUST_CHECK status_t image_files_first_side(const struct image_files *folder, int *ret, struct err *e);

/* A digest of n sets (NULL = none) in order, hex: names, labels, lengths, and of a set of at most 1 GiB the bytes. */
MUST_CHECK status_t image_set_digest(struct image_set *const *sets, int n, char ret[SHA256_HEX], struct err *e);

#endif
