/* The content of a checkpoint: named tensors, divided into segments that ranks write and any number of ranks reads.
 *
 * A tensor is F32 (training state has no other dtype: 16-bit weights are stored as their fp32 masters), row-major,
 * little-endian. Its name does not depend on the layout that wrote it:
 *
 *     NAME                       a weight, or a statistic (batch norm's running mean and variance)
 *     optimizer.STATE.NAME       an optimizer's state, by optimizer_kind.state_name
 *     ema.NAME                   the average of a weight
 *
 * Only the first kind counts in weights_sha256. Names have 1 to 200 bytes of printable ASCII without space, '[', '"' or
 * '\'.
 *
 * A segment is a range of a tensor's elements in row-major order, of any length. Segments begin at multiples of
 * CHECKPOINT_CHUNK_ELEMENTS, like the shards of plans, so that each writer can digest whole chunks in place. */
#ifndef ENGINE_CHECKPOINT_TENSOR_H
#define ENGINE_CHECKPOINT_TENSOR_H

#include "base/sha256.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

#define CHECKPOINT_OPTIMIZER_PREFIX "optimizer."
#define CHECKPOINT_AVERAGE_PREFIX   "ema."

enum {
    CHECKPOINT_RANK = 8,           /* dimensions of a tensor, 0 .. 8 */
    CHECKPOINT_NAME_BYTES = 201,   /* with the NUL */
    CHECKPOINT_TENSORS = 65536,    /* in one checkpoint */
    CHECKPOINT_CHUNK_BYTES = 4096, /* a chunk: the unit of the digests */
    CHECKPOINT_CHUNK_ELEMENTS = CHECKPOINT_CHUNK_BYTES / 4,
    CHECKPOINT_NORMS = 1024,                 /* the longest window of gradient norms */
    CHECKPOINT_TUNING_CACHE_BYTES = 2 << 20, /* limit of a rank's tuning cache, with its NUL */
};

struct checkpoint_tensor {
    const char *name;
    int n_dims;
    int64_t shape[CHECKPOINT_RANK]; /* each >= 1 */
};

int64_t checkpoint_tensor_elements(const struct checkpoint_tensor *t);
bool checkpoint_tensor_is_weight(const char *name);
/* The message of INVALID_ARGUMENT names the tensor and the error in its name or shape. */
MUST_CHECK status_t checkpoint_tensor_check(const struct checkpoint_tensor *t, struct err *e);

/* Elements [first, first + count) of tensors[tensor]. */
struct checkpoint_segment {
    int tensor;
    int64_t first, count;
};

#endif
