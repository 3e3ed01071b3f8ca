/* Digests of tensors and of a model. Each rank can compute its share, and any program can compute them from the files:
 *
 *   chunk    SHA-256 of 4 KiB (1,024 elements) of a tensor's bytes (the last chunk may be shorter)
 *   tensor   SHA-256 of its chunks' digests (32 bytes each), in order
 *   weights  SHA-256 of one line a weight tensor, sorted by name (bytewise): "NAME F32 [D0,D1,...] HEX\n"
 *
 * tests/engine/weights_sha256.py computes the same in 60 lines of Python. Pure functions. Private to this folder. */
#ifndef ENGINE_CHECKPOINT_DIGEST_H
#define ENGINE_CHECKPOINT_DIGEST_H

#include "engine/checkpoint/tensor.h"

typedef uint8_t digest_t[SHA256_BYTES];

/* The number of chunks of a tensor with this number of elements. */
int64_t digest_chunks(int64_t elements);

/* chunks (digest_chunks(count)) = the digests of data (count). */
void digest_data(const float *data, int64_t count, digest_t *chunks);

/* "[50257,768]"; "[]" for a scalar. */
enum { DIGEST_SHAPE_BYTES = 2 + CHECKPOINT_RANK * 21 };
void digest_shape_text(const struct checkpoint_tensor *t, char ret[DIGEST_SHAPE_BYTES]);

/* The digest (hex) of the weights among tensors (n), which may be in any order; digests (n) are theirs. */
void digest_weights(const struct checkpoint_tensor *tensors, const digest_t *digests, int n, char ret[SHA256_HEX]);

/* Two lower-case hexadecimal digits for each byte. Returns false if `hex` has another form. */
bool digest_from_hex(const char *hex, digest_t ret);

#endif
