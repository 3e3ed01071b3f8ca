/* The files in a tar archive that is not compressed: ustar, with the long names of GNU tar and of pax. Archives are
 * untrusted: whatever their bytes are, a file that is found lies within the archive. Any thread. Private to this folder
 * and its fuzz target. */
#ifndef ENGINE_DATA_IMAGE_TAR_H
#define ENGINE_DATA_IMAGE_TAR_H

#include "base/status.h"
#include "engine/data/data_file.h"

#include <stdint.h>

enum { TAR_NAME_BYTES = 4096 };

/* A regular file of the archive, and where its bytes are. An error ends the list. */
typedef status_t tar_found_fn(void *ctx, const char *name, int64_t offset, int64_t bytes, struct err *e);

/* Calls `found` for each regular file, in the order of the archive. Folders and links are passed over. INVALID_ARGUMENT
 * with the byte: not a tar archive, a damaged or incomplete one, a sparse file, a name of TAR_NAME_BYTES or more. */
MUST_CHECK status_t tar_list(const struct data_file *f, tar_found_fn *found, void *ctx, struct err *e);

#endif
