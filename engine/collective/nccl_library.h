/* libnccl.so.2, loaded on demand: a host without it can still train, with one device per job. Private to this folder's
 * part of the CUDA plugin. */
#ifndef ENGINE_COLLECTIVE_NCCL_LIBRARY_H
#define ENGINE_COLLECTIVE_NCCL_LIBRARY_H

#include "engine/collective/plugin.h"

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

/* Loads the library once; it stays loaded. Any thread. FAILED_PRECONDITION: missing, or older than 2.18. */
MUST_CHECK status_t nccl_library_open(const struct nccl_library **ret, struct err *e);

/* Makes an id on rank 0 and sends it to every rank, by one rendezvous. */
MUST_CHECK status_t nccl_share_id(const struct nccl_library *nccl, const struct device_gang *gang, ncclUniqueId *ret,
                                  struct err *e);

/* Sets NCCL's environment variables, before the library reads them once. The algorithm is set for the all-reduce only:
 * gathers and sums to one rank support only Ring and fail with any other. FAILED_PRECONDITION: this version of NCCL
 * cannot set an algorithm per operation. */
MUST_CHECK status_t nccl_tune(const struct nccl_library *nccl, const struct collective_tuning *tuning, struct err *e);

/* Neither result is an error. */
static inline bool nccl_goes_on(ncclResult_t result) { return result == ncclSuccess || result == ncclInProgress; }

/* OK if nccl_goes_on; else UNAVAILABLE for a peer's failure, FAILED_PRECONDITION for an operation that this gang's
 * devices or their environment do not support, INTERNAL for the rest, with NCCL's own message. */
MUST_CHECK status_t nccl_status(const struct nccl_library *nccl, ncclResult_t result, const char *what, struct err *e);

#endif
