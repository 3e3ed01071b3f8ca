/* NVIDIA's CUPTI, loaded at run time: the functions that trace.c calls. */
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

/* FAILED_PRECONDITION: CUPTI is missing, lacks one of the functions, is older than the headers of this build, or has
 * another major version. Once loaded it stays until the process ends. Not thread-safe. */
MUST_CHECK status_t cupti_load(const struct cupti **ret, struct err *e);

/* Converts a CUptiResult: FAILED_PRECONDITION with the message "<what>: <CUPTI's text>". */
MUST_CHECK status_t cupti_status(const struct cupti *c, CUptiResult result, const char *what, struct err *e);

#endif
