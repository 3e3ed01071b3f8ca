#include "engine/checkpoint/tensor.h"

#include <string.h>

/* The limit prevents an overflow of a size in bytes. */
#define MAX_ELEMENTS ((int64_t)1 << 50)

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
        if (t->shape[i] < 1 || __builtin_mul_overflow(elements, t->shape[i], &elements) || elements > MAX_ELEMENTS)
            return err_set(e, ST_INVALID_ARGUMENT, "the tensor %s has a shape with %lld in it", t->name,
                           (long long)t->shape[i]);
    return ST_OK;
}
