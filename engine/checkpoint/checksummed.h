/* JSON files with a checksum of themselves: the last member is "self_sha256", the SHA-256 of all bytes before its
 * comma. The bytes after that are fixed, so every change of the file is detected. For this folder, and for the manifest
 * of a program's checkpoint (executor/worker/file_manifest.h). */
#ifndef ENGINE_CHECKPOINT_CHECKSUMMED_H
#define ENGINE_CHECKPOINT_CHECKSUMMED_H

#include "base/bytes.h"
#include "base/status.h"

#include <jansson.h>

/* Appends root (an object with at least one member) and its checksum. */
MUST_CHECK status_t checksummed_write(const json_t *root, struct bytes *ret, struct err *e);

/* DATA_LOSS if the text differs from the output of checksummed_write. Does not parse the text. */
MUST_CHECK status_t checksummed_check(const char *text, size_t n, struct err *e);

#endif
