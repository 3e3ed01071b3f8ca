#include "tests/kernels/cuda/libcupti.h"

#include <string.h>

extern struct cupti_script cupti_script;
struct cupti_script cupti_script;

CUptiResult cuptiGetVersion(uint32_t *version) {
    *version = cupti_script.version;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiGetResultString(CUptiResult result, const char **text) {
    if (result == CUPTI_ERROR_UNKNOWN) /* the library has no text for it, or pretends to */
        return CUPTI_ERROR_INVALID_PARAMETER;
    *text = result == CUPTI_ERROR_INVALID_DEVICE ? NULL : "somebody else profiles";
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc wanted,
                                           CUpti_BuffersCallbackCompleteFunc full) {
    cupti_script.wanted = wanted;
    cupti_script.full = full;
    return cupti_script.registers;
}

CUptiResult cuptiActivityRegisterTimestampCallback(CUpti_TimestampCallbackFunc clock) {
    cupti_script.clock = clock;
    return cupti_script.enables == 0 ? CUPTI_SUCCESS : CUPTI_ERROR_INVALID_OPERATION;
}

CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
    if (kind == cupti_script.refused)
        return CUPTI_ERROR_INSUFFICIENT_PRIVILEGES;
    cupti_script.enabled[kind] = true;
    cupti_script.enables++;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityDisable(CUpti_ActivityKind kind) {
    cupti_script.enabled[kind] = false;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityFlushAll(uint32_t flag) {
    uint8_t *buffer = NULL;
    size_t size = 0, most = 1;
    (void)flag;
    if (!cupti_script.records)
        return cupti_script.flushes;
    cupti_script.wanted(&buffer, &size, &most);
    if (!buffer || size < cupti_script.bytes || most != 0)
        return CUPTI_ERROR_OUT_OF_MEMORY;
    memcpy(buffer, cupti_script.records, cupti_script.bytes);
    cupti_script.records = NULL;
    cupti_script.full(NULL, 0, buffer, size, cupti_script.valid);
    return cupti_script.flushes;
}

static size_t bytes_of(CUpti_ActivityKind kind) {
    switch (kind) {
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: return sizeof(CUpti_ActivityExternalCorrelation);
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: return sizeof(CUpti_ActivityKernel10);
    case CUPTI_ACTIVITY_KIND_MEMCPY: return sizeof(CUpti_ActivityMemcpy6);
    case CUPTI_ACTIVITY_KIND_MEMSET: return sizeof(CUpti_ActivityMemset4);
    case CUPTI_ACTIVITY_KIND_RUNTIME: return sizeof(CUpti_ActivityAPI);
    default: return 0;
    }
}

CUptiResult cuptiActivityGetNextRecord(uint8_t *buffer, size_t valid, CUpti_Activity **record) {
    uint8_t *next = *record ? (uint8_t *)*record + bytes_of((*record)->kind) : buffer;
    if (cupti_script.walk == CUPTI_STANDS)
        next = buffer;
    const size_t left = buffer + valid > next ? (size_t)(buffer + valid - next) : 0;
    if (cupti_script.walk == CUPTI_WALKS && left < sizeof(CUpti_Activity))
        return CUPTI_ERROR_MAX_LIMIT_REACHED;
    if (cupti_script.walk == CUPTI_WALKS && bytes_of(((CUpti_Activity *)(void *)next)->kind) == 0)
        return CUPTI_ERROR_INVALID_KIND;
    *record = (CUpti_Activity *)(void *)next;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext context, uint32_t stream, size_t *dropped) {
    (void)context, (void)stream;
    *dropped = cupti_script.dropped;
    cupti_script.dropped = 0;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityPushExternalCorrelationId(CUpti_ExternalCorrelationKind kind, uint64_t id) {
    if (kind != CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0 || cupti_script.n_pushed == 8)
        return CUPTI_ERROR_INVALID_PARAMETER;
    cupti_script.pushed[cupti_script.n_pushed++] = id;
    cupti_script.n_open++;
    return CUPTI_SUCCESS;
}

CUptiResult cuptiActivityPopExternalCorrelationId(CUpti_ExternalCorrelationKind kind, uint64_t *last) {
    if (kind != CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0 || cupti_script.n_open == 0)
        return CUPTI_ERROR_QUEUE_EMPTY;
    *last = cupti_script.pushed[cupti_script.n_pushed - 1];
    cupti_script.n_open--;
    return CUPTI_SUCCESS;
}
