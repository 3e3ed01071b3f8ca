#include "tests/kernels/cuda/libcudnn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct cudnn_script cudnn_script;

struct part {
    cudnnBackendDescriptorType_t type;
    int engine; /* of a configuration, an engine, a plan or the choice of a knob */
};
enum { KNOB = CUDNN_KNOB_TYPE_TILE_SIZE, KNOB_VALUE = 100 }; /* of each engine: KNOB_VALUE plus its number */

static struct part *part_of(cudnnBackendDescriptor_t d) { return d; }

size_t cudnnGetVersion(void) { return cudnn_script.version; }

cudnnStatus_t cudnnCreate(cudnnHandle_t *ret) {
    *ret = (cudnnHandle_t)&cudnn_script;
    return cudnn_script.create;
}
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
    (void)handle;
    return CUDNN_STATUS_SUCCESS;
}
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
    (void)handle, (void)stream;
    return CUDNN_STATUS_SUCCESS;
}

void cudnnGetLastErrorString(char *to, size_t n) { snprintf(to, n, "as the script says"); }

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *ret) {
    struct part *p = calloc(1, sizeof *p);
    if (!p)
        abort();
    p->type = type;
    *ret = p;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t d) {
    free(d);
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t d) {
    const struct part *p = part_of(d);
    if (p->type == CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR)
        return cudnn_script.graph;
    if (p->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR) {
        cudnn_script.plans++;
        return cudnn_script.engine[p->engine].plan;
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t d, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t n, const void *values) {
    (void)type;
    if (name == CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG)
        part_of(d)->engine = part_of(*(cudnnBackendDescriptor_t const *)values)->engine;
    if (name == CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS) {
        if (n > MAX_SCRIPT_POINTERS)
            abort();
        cudnn_script.n = n;
        memcpy(cudnn_script.id, values, (size_t)n * sizeof(int64_t));
    }
    if (name == CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)
        memcpy(cudnn_script.pointer, values, (size_t)n * sizeof(void *));
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t const d, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, int64_t most, int64_t *ret_n, void *values) {
    const struct part *p = part_of(d);
    (void)type;
    *ret_n = 0;
    if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS) {
        for (int i = 0; i < cudnn_script.engines && i < most; i++)
            part_of(((cudnnBackendDescriptor_t *)values)[i])->engine = (cudnn_script.first + i) % cudnn_script.engines;
        *ret_n = cudnn_script.engines; /* also if it is larger than the number asked for */
    }
    if (name == CUDNN_ATTR_ENGINECFG_ENGINE) {
        part_of(*(cudnnBackendDescriptor_t *)values)->engine = p->engine;
        *ret_n = 1;
    }
    if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE && cudnn_script.engine[p->engine].nondeterministic) {
        *(cudnnBackendNumericalNote_t *)values = CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
        *ret_n = 1;
    }
    if (name == CUDNN_ATTR_ENGINE_GLOBAL_INDEX)
        *(int64_t *)values = p->engine;
    if (name == CUDNN_ATTR_ENGINECFG_KNOB_CHOICES) {
        part_of(*(cudnnBackendDescriptor_t *)values)->engine = p->engine;
        *ret_n = 1;
    }
    if (name == CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE)
        *(cudnnBackendKnobType_t *)values = (cudnnBackendKnobType_t)KNOB;
    if (name == CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE)
        *(int64_t *)values = KNOB_VALUE + p->engine;
    if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE) {
        *(int64_t *)values = cudnn_script.engine[p->engine].workspace;
        *ret_n = 1;
    }
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan, cudnnBackendDescriptor_t pack) {
    (void)handle, (void)pack;
    cudnn_script.runs++;
    cudnn_script.ran = part_of(plan)->engine;
    cudnn_script.clock_ms += cudnn_script.engine[cudnn_script.ran].ms;
    return cudnn_script.engine[cudnn_script.ran].run;
}
