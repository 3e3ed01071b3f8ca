/* A spec of the Container Device Interface: which files of the host a container with a GPU needs, as `nvidia-ctk cdi
 * generate` writes them (YAML or JSON). Of a spec, the mounts count: hooks, variables and device files are the
 * container's own. Private to this folder. */
#ifndef EXECUTOR_CONTAINER_CDI_H
#define EXECUTOR_CONTAINER_CDI_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>

enum { CDI_BYTES_MAX = 1 << 20, CDI_MOUNTS_MAX = 1024 };

/* on_mount gets the absolute path of each file that the devices of NVIDIA's kind need, a file perhaps several times; it
 * is valid during the call. *ret_gpus: the spec is one of that kind. INVALID_ARGUMENT: the text is no spec.
 * RESOURCE_EXHAUSTED: it has more than CDI_BYTES_MAX bytes or CDI_MOUNTS_MAX mounts. */
MUST_CHECK status_t cdi_read(const char *text, size_t n, void (*on_mount)(void *ctx, const char *host_path), void *ctx,
                             bool *ret_gpus, struct err *e);

#endif
