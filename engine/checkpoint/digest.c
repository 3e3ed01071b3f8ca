#include "engine/checkpoint/digest.h"

#include "base/alloc.h"
#include "base/cleanup.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int64_t digest_chunks(int64_t elements) {
    return (elements + CHECKPOINT_CHUNK_ELEMENTS - 1) / CHECKPOINT_CHUNK_ELEMENTS;
}

void digest_data(const float *data, int64_t count, digest_t *chunks) {
    for (int64_t first = 0; first < count; first += CHECKPOINT_CHUNK_ELEMENTS) {
        int64_t n = count - first < CHECKPOINT_CHUNK_ELEMENTS ? count - first : CHECKPOINT_CHUNK_ELEMENTS;
        sha256_of(data + first, (size_t)n * sizeof *data, *chunks++);
    }
}

void digest_shape_text(const struct checkpoint_tensor *t, char ret[DIGEST_SHAPE_BYTES]) {
    int at = snprintf(ret, DIGEST_SHAPE_BYTES, "[");
    for (int i = 0; i < t->n_dims; i++)
        at += snprintf(ret + at, (size_t)(DIGEST_SHAPE_BYTES - at), "%s%lld", i ? "," : "", (long long)t->shape[i]);
    snprintf(ret + at, (size_t)(DIGEST_SHAPE_BYTES - at), "]");
}

static int by_name(const void *a, const void *b, void *ctx) {
    const struct checkpoint_tensor *tensors = ctx;
    return strcmp(tensors[*(const int *)a].name, tensors[*(const int *)b].name);
}

void digest_weights(const struct checkpoint_tensor *tensors, const digest_t *digests, int n, char ret[SHA256_HEX]) {
    CLEANUP(freep) int *order = alloc_zeroed((size_t)n + 1, sizeof *order);
    for (int i = 0; i < n; i++)
        order[i] = i;
    /* Sorted by name, so that the digest does not depend on the order of the caller's list. */
    qsort_r(order, (size_t)n, sizeof *order, by_name, (void *)tensors);
    struct sha256 sha256;
    sha256_begin(&sha256);
    for (int i = 0; i < n; i++) {
        const struct checkpoint_tensor *t = &tensors[order[i]];
        if (!checkpoint_tensor_is_weight(t->name))
            continue;
        char shape[DIGEST_SHAPE_BYTES], hex[SHA256_HEX], line[CHECKPOINT_NAME_BYTES + DIGEST_SHAPE_BYTES + 80];
        digest_shape_text(t, shape);
        sha256_hex(digests[order[i]], hex);
        int length = snprintf(line, sizeof line, "%s F32 %s %s\n", t->name, shape, hex);
        sha256_update(&sha256, line, (size_t)length);
    }
    digest_t digest;
    sha256_final(&sha256, digest);
    sha256_hex(digest, ret);
}

static int digit(char c) { return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1; }

bool digest_from_hex(const char *hex, digest_t ret) {
    if (strlen(hex) != SHA256_HEX - 1)
        return false;
    for (int i = 0; i < SHA256_BYTES; i++) {
        int high = digit(hex[2 * i]), low = digit(hex[2 * i + 1]);
        if (high < 0 || low < 0)
            return false;
        ret[i] = (uint8_t)(high << 4 | low);
    }
    return true;
}
