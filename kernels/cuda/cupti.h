/* NVIDIA's CUPTI, loaded at run time: what trace.c calls of it. */
#ifndef KERNELS_CUDA_CUPTI_H
#define KERNELS_CUDA_CUPTI_H

#include "base/status.h"

#include <cupti.h>

#define CUPTI_FUNCTIONS(F)                                                                                             \
    F(cuptiGetVersion)                                                                                                 \
    F(cuptiGetResultString)                                                                                            \
    F(cuptiActivityRegisterCallbacks)                                                                                  \
    F(cuptiActivityRegisterTimestampCallback)                                                                          \
    F(cuptiActivityEnable)                                                                                             \
    F(cuptiActivityDisable)                                                                                            \
    F(cuptiActivityFlushAll)                                                                                           \
    F(cuptiActivityGetNextRecord)                                                                                      \
    F(cuptiActivityGetNumDroppedRecords)                                                                               \
    F(cuptiActivityPushExternalCorrelationId)                                                                          \
    F(cuptiActivityPopExternalCorrelationId)

struct cupti {
#define CUPTI_MEMBER(f) __typeof__(f) *f;
    CUPTI_FUNCTIONS(CUPTI_MEMBER)
#undef CUPTI_MEMBER
};

/* FAILED_PRECONDITION: not there, without one of the functions, of another major version than the headers that this was
 * built with, or older. Once loaded it stays until the process ends. Not thread-safe. */
MUST_CHECK status_t cupti_load(const struct cupti **ret, struct err *e);

/* CUptiResult as ours: "<what>: <CUPTI's text>", FAILED_PRECONDITION. */
MUST_CHECK status_t cupti_status(const struct cupti *c, CUptiResult result, const char *what, struct err *e);

#endif
