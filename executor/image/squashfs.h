/* Images of enroot (.sqsh) and apptainer (.sif): one squashfs, which the program unsquashfs unpacks. A .sif has it
 * beside other parts. */
#ifndef EXECUTOR_IMAGE_SQUASHFS_H
#define EXECUTOR_IMAGE_SQUASHFS_H

#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

/* Whether the open file begins as one of them; then *ret_offset is where the squashfs begins. machine: as uname names
 * it. INVALID_ARGUMENT: a .sif that is damaged, for another kind of machine, or without a squashfs for its root. */
MUST_CHECK status_t squashfs_find(int file, const char *machine, bool *ret, int64_t *ret_offset, struct err *e);

/* Writes a file as image_order.variables: those that enroot (/etc/environment) and apptainer (/.singularity.d/env) have
 * taken from the OCI image. root: the open folder of the unpacked files. Errors: of files. */
MUST_CHECK status_t squashfs_variables_write(int root, const char *path, struct err *e);

#endif
