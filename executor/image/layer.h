/* One layer of an image: a tar, perhaps compressed, of the files that it adds to those of the layers below, with names
 * .wh.NAME for those that it hides. */
#ifndef EXECUTOR_IMAGE_LAYER_H
#define EXECUTOR_IMAGE_LAYER_H

#include "base/status.h"

#include <stdint.h>

/* What is left of the limits of an image. */
struct layer_limits {
    int64_t bytes, files;
};

/* Applies the layer in the open file to the files below the open folder `root`. Links of the image are followed as in
 * the image: no name leads out of the folder. Owners, setuid bits, attributes and devices are left out; times are kept,
 * since Python compares them. INVALID_ARGUMENT: the layer is no such tar, or its SHA-256 is not `digest`.
 * RESOURCE_EXHAUSTED: a limit. Other errors: of files. */
MUST_CHECK status_t layer_apply(int file, const char *digest, int root, struct layer_limits *limits, struct err *e);

#endif
