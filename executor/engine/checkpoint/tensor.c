#include "executor/engine/checkpoint/tensor.h"

#include "executor/engine/checkpoint/digest.h"

#include <string.h>

/* Element counts stay far from overflow wherever they are multiplied by four. */
#define ELEMENTS_MOST ((int64_t)1 << 50)

int64_t checkpoint_tensor_elements(const struct checkpoint_tensor *t) {
    int64_t n = 1;
    for (int i = 0; i < t->n_dims; i++)
        n *= t->shape[i];
    return n;
}

bool checkpoint_tensor_is_weight(const char *name) {
    return strncmp(name, CHECKPOINT_OPTIMIZER_PREFIX, strlen(CHECKPOINT_OPTIMIZER_PREFIX)) != 0 &&
           strncmp(name, CHECKPOINT_AVERAGE_PREFIX, strlen(CHECKPOINT_AVERAGE_PREFIX)) != 0;
}

status_t checkpoint_tensor_check(const struct checkpoint_tensor *t, struct err *e) {
    size_t length = strlen(t->name);
    if (length == 0 || length >= CHECKPOINT_NAME_BYTES)
        return err_set(e, ST_INVALID_ARGUMENT, "a tensor's name has %zu bytes (1 to %d are allowed)", length,
                       CHECKPOINT_NAME_BYTES - 1);
    for (size_t i = 0; i < length; i++)
        if (t->name[i] <= ' ' || t->name[i] > '~' || strchr("[\"\\", t->name[i]))
            return err_set(e, ST_INVALID_ARGUMENT, "a tensor's name has the byte 0x%02x at %zu",
                           (unsigned char)t->name[i], i);
    if (strcmp(t->name, "__metadata__") == 0)
        return err_set(e, ST_INVALID_ARGUMENT, "a tensor is named __metadata__, which safetensors keeps for itself");
    if (t->n_dims < 0 || t->n_dims > CHECKPOINT_RANK)
        return err_set(e, ST_INVALID_ARGUMENT, "the tensor %s has %d dimensions (at most %d are allowed)", t->name,
                       t->n_dims, CHECKPOINT_RANK);
    int64_t elements = 1;
    for (int i = 0; i < t->n_dims; i++)
        if (t->shape[i] < 1 || __builtin_mul_overflow(elements, t->shape[i], &elements) || elements > ELEMENTS_MOST)
            return err_set(e, ST_INVALID_ARGUMENT, "the tensor %s has a shape with %lld in it", t->name,
                           (long long)t->shape[i]);
    return ST_OK;
}

int checkpoint_cut(const struct checkpoint_tensor *tensors, int n, int rank, int world_size,
                   struct checkpoint_piece *pieces) {
    int64_t all = 0;
    for (int i = 0; i < n; i++)
        all += digest_chunks(checkpoint_tensor_elements(&tensors[i]));
    /* This rank's share of the chunks, numbered through all tensors. */
    int64_t first = all * rank / world_size, end = all * (rank + 1) / world_size;
    int count = 0;
    int64_t at = 0;
    for (int i = 0; i < n; i++) {
        int64_t elements = checkpoint_tensor_elements(&tensors[i]), chunks = digest_chunks(elements);
        int64_t from = first > at ? first - at : 0, to = end - at < chunks ? end - at : chunks;
        at += chunks;
        if (from >= to)
            continue;
        int64_t from_element = from * CHECKPOINT_CHUNK_ELEMENTS, to_element = to * CHECKPOINT_CHUNK_ELEMENTS;
        if (to_element > elements)
            to_element = elements;
        pieces[count++] = (struct checkpoint_piece){ i, from_element, to_element - from_element };
    }
    return count;
}
