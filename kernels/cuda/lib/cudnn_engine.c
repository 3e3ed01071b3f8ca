#include "kernels/cuda/lib/cudnn_library.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { MAX_KNOBS = CUDNN_KNOB_TYPE_COUNTS };

/* Makes a descriptor that cuDNN will fill in. */
struct made {
    cudnn_descriptor of[MAX_KNOBS];
    int n;
};

static cudnnStatus_t make(struct cudnn *c, cudnnBackendDescriptorType_t type, int n, struct made *ret) {
    cudnnStatus_t st = CUDNN_STATUS_SUCCESS;
    for (ret->n = 0; ret->n < n && st == CUDNN_STATUS_SUCCESS;) {
        st = c->cudnnBackendCreateDescriptor(type, &ret->of[ret->n]);
        ret->n += st == CUDNN_STATUS_SUCCESS;
    }
    return st;
}

static void destroy(struct cudnn *c, struct made *m) {
    while (m->n > 0)
        c->cudnnBackendDestroyDescriptor(m->of[--m->n]);
}

/* Appends to the name. NOT_SUPPORTED: no space is left. */
static cudnnStatus_t append(char text[ENGINE_NAME_BYTES], const char *before, int64_t number) {
    const size_t used = strlen(text), left = ENGINE_NAME_BYTES - used;
    return (size_t)snprintf(text + used, left, "%s%" PRId64, before, number) < left ? CUDNN_STATUS_SUCCESS
                                                                                    : CUDNN_STATUS_NOT_SUPPORTED;
}

static cudnnStatus_t number_of(struct cudnn *c, cudnn_descriptor config, char text[ENGINE_NAME_BYTES]) {
    struct made engine;
    int64_t n = 0, number = 0;
    cudnnStatus_t st = make(c, CUDNN_BACKEND_ENGINE_DESCRIPTOR, 1, &engine);
    if (st == CUDNN_STATUS_SUCCESS)
        st = c->cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &n,
                                         engine.of);
    if (st == CUDNN_STATUS_SUCCESS)
        st = c->cudnnBackendGetAttribute(engine.of[0], CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &n,
                                         &number);
    destroy(c, &engine);
    return st == CUDNN_STATUS_SUCCESS ? append(text, "", number) : st;
}

static cudnnStatus_t knob_of(struct cudnn *c, cudnn_descriptor knob, bool first, char text[ENGINE_NAME_BYTES]) {
    cudnnBackendKnobType_t type = CUDNN_KNOB_TYPE_COUNTS;
    int64_t n = 0, value = 0;
    cudnnStatus_t st = c->cudnnBackendGetAttribute(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1, &n,
                                                   &type);
    if (st == CUDNN_STATUS_SUCCESS)
        st = c->cudnnBackendGetAttribute(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1, &n, &value);
    if (st == CUDNN_STATUS_SUCCESS)
        st = append(text, first ? ":" : ",", (int64_t)type);
    return st == CUDNN_STATUS_SUCCESS ? append(text, "=", value) : st;
}

cudnnStatus_t cudnn_engine_name(struct cudnn *c, cudnn_descriptor config, char ret[ENGINE_NAME_BYTES]) {
    struct made knobs;
    int64_t n = 0;
    ret[0] = '\0';
    cudnnStatus_t st = number_of(c, config, ret);
    if (st != CUDNN_STATUS_SUCCESS)
        return st;
    st = make(c, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, MAX_KNOBS, &knobs);
    if (st == CUDNN_STATUS_SUCCESS)
        st = c->cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                         MAX_KNOBS, &n, knobs.of);
    for (int64_t i = 0; i < n && i < MAX_KNOBS && st == CUDNN_STATUS_SUCCESS; i++)
        st = knob_of(c, knobs.of[i], i == 0, ret);
    destroy(c, &knobs);
    return st;
}
