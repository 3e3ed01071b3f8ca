/* The files of an OCI image, for one host. */
#ifndef EXECUTOR_IMAGE_UNPACK_H
#define EXECUTOR_IMAGE_UNPACK_H

#include "base/status.h"

#include <stdint.h>

struct image_order {
    int source;            /* an OCI layout, open to be read: a folder, or an archive of one; borrowed */
    const char *temporary; /* an existing folder, for the parts of an archive */
    const char *root;      /* a new folder, which gets the files */
    const char *variables; /* a new file: the image's variables, each with a zero byte at its end */
    int64_t max_bytes;     /* of all files */
};

/* INVALID_ARGUMENT: the image is wrong, on any host. RESOURCE_EXHAUSTED and others: this host cannot do it. */
MUST_CHECK status_t image_unpack(const struct image_order *o, struct err *e);

#endif
