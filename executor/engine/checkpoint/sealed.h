/* JSON files that carry a digest of themselves: the last member is "self_sha256", of all bytes before its comma. What
 * follows those bytes is fixed to the last one, so that any change anywhere is seen. Private to this folder. */
#ifndef EXECUTOR_ENGINE_CHECKPOINT_SEALED_H
#define EXECUTOR_ENGINE_CHECKPOINT_SEALED_H

#include "base/bytes.h"
#include "base/status.h"

#include <jansson.h>

/* Appends root (an object with at least one member) and its seal. */
MUST_CHECK status_t sealed_write(const json_t *root, struct bytes *ret, struct err *e);

/* DATA_LOSS when the text is not what sealed_write wrote. Parsing it is another matter. */
MUST_CHECK status_t sealed_check(const char *text, size_t n, struct err *e);

#endif
