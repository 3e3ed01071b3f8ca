/* libnccl.so.2, loaded when it is asked for: hosts without it still train, on one device each. Private to this folder's
 * part of the CUDA plugin. */
#ifndef EXECUTOR_ENGINE_COLLECTIVE_NCCL_LIBRARY_H
#define EXECUTOR_ENGINE_COLLECTIVE_NCCL_LIBRARY_H

#include "executor/engine/collective/device.h"

#include <nccl.h>
#include <stdbool.h>

#define NCCL_FUNCTIONS(F)                                                                                              \
    F(ncclGetVersion)                                                                                                  \
    F(ncclGetUniqueId)                                                                                                 \
    F(ncclGetErrorString)                                                                                              \
    F(ncclGetLastError)                                                                                                \
    F(ncclCommInitRankConfig)                                                                                          \
    F(ncclCommSplit)                                                                                                   \
    F(ncclCommGetAsyncError)                                                                                           \
    F(ncclCommFinalize)                                                                                                \
    F(ncclCommDestroy)                                                                                                 \
    F(ncclCommAbort)                                                                                                   \
    F(ncclGroupStart)                                                                                                  \
    F(ncclGroupEnd)                                                                                                    \
    F(ncclSend)                                                                                                        \
    F(ncclRecv)                                                                                                        \
    F(ncclReduce)                                                                                                      \
    F(ncclAllReduce)                                                                                                   \
    F(ncclBroadcast)

struct nccl_library {
    int version; /* 22809: 2.28.9 */
#define NCCL_MEMBER(f) __typeof__(f) *f;
    NCCL_FUNCTIONS(NCCL_MEMBER)
#undef NCCL_MEMBER
};

/* Loaded once, by any thread; it stays until the process ends. FAILED_PRECONDITION: not there, or older than 2.18. */
MUST_CHECK status_t nccl_library_open(const struct nccl_library **ret, struct err *e);

/* Rank 0's new id becomes every rank's, by one exchange. */
MUST_CHECK status_t nccl_meet(const struct nccl_library *nccl, const struct device_gang *gang, ncclUniqueId *ret,
                              struct err *e);

/* What is set before the library first reads the environment, which it does once. An algorithm is the all-reduce's
 * alone: gathers and sums to one rank have none but Ring, and fail when told another. FAILED_PRECONDITION: this NCCL
 * cannot be told so. */
MUST_CHECK status_t nccl_tune(const struct nccl_library *nccl, const struct collective_tuning *tuning, struct err *e);

/* What goes on, or will. */
static inline bool nccl_goes_on(ncclResult_t result) { return result == ncclSuccess || result == ncclInProgress; }

/* OK for what goes on; else UNAVAILABLE for a peer's failure, FAILED_PRECONDITION for what this gang's devices or
 * their environment cannot do, INTERNAL for the rest, with NCCL's own words. */
MUST_CHECK status_t nccl_status(const struct nccl_library *nccl, ncclResult_t result, const char *what, struct err *e);

#endif
