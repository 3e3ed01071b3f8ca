/* The JSON of an OCI image layout, as pure functions of its bytes.
 *
 *     index.json        -> the manifest for this kind of machine, or another index
 *     a manifest        -> the config, and the layers from the lowest to the uppermost
 *     a config          -> the variables of its processes
 *
 * Every digest is a SHA-256. What is wrong is INVALID_ARGUMENT; no sentence repeats the bytes. */
#ifndef EXECUTOR_IMAGE_LAYOUT_H
#define EXECUTOR_IMAGE_LAYOUT_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

enum { LAYOUT_DIGEST_BYTES = 65, LAYOUT_LAYERS_MAX = 512, LAYOUT_JSON_MAX = 4 << 20 };

/* In hexadecimal digits, without "sha256:". */
struct layout_digest {
    char text[LAYOUT_DIGEST_BYTES];
};

struct layout_manifest {
    struct layout_digest config;
    struct layout_digest layers[LAYOUT_LAYERS_MAX];
    size_t n_layers;
};

/* machine: as uname names it. An index of one image names it, whatever its platform. *ret_index: it is an index. */
MUST_CHECK status_t layout_index_read(const char *json, size_t n, const char *machine, struct layout_digest *ret,
                                      bool *ret_index, struct err *e);
MUST_CHECK status_t layout_manifest_read(const char *json, size_t n, struct layout_manifest *ret, struct err *e);
/* Whether NAME=value is a variable that an image may set: not one of Trainyard. */
bool layout_is_variable(const char *text);
/* ret: the variables NAME=value, each with a zero byte at its end; the caller frees it. Those that are no variables,
 * and those of Trainyard, are left out. INVALID_ARGUMENT also if the image is for another kind of machine. */
MUST_CHECK status_t layout_config_read(const char *json, size_t n, const char *machine, char **ret, size_t *ret_n,
                                       struct err *e);

#endif
