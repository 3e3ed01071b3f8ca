#include "engine/collective/nccl_library.h"

#include "base/alloc.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const char NAME[] = "libnccl.so.2";
enum {
    MIN_VERSION = 21800,    /* the first with ncclCommSplit and non-blocking communicators */
    VERSION_BY_CALL = 22403 /* the first that accepts an algorithm per operation */
};

static status_t function_find(void *handle, const char *name, void **ret, struct err *e) {
    *ret = dlsym(handle, name);
    return *ret ? ST_OK : err_set(e, ST_FAILED_PRECONDITION, "%s has no %s", NAME, name);
}

static status_t load(struct nccl_library *nccl, struct err *e) {
    void *handle = dlopen(NAME, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return err_set(e, ST_FAILED_PRECONDITION, "cannot load NCCL, which ranks on CUDA need to communicate: %s",
                       dlerror());
#define NCCL_FIND(f) TRY(function_find(handle, #f, (void **)&nccl->f, e));
    NCCL_FUNCTIONS(NCCL_FIND)
#undef NCCL_FIND
    TRY(nccl_status(nccl, nccl->ncclGetVersion(&nccl->version), "comm_check NCCL for its version", e));
    return nccl->version >= MIN_VERSION
               ? ST_OK
               : err_set(e, ST_FAILED_PRECONDITION, "NCCL %d.%d is older than 2.18, the oldest supported version",
                         nccl->version / 10000, nccl->version / 100 % 100);
}

status_t nccl_library_open(const struct nccl_library **ret, struct err *e) {
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    static struct nccl_library library;
    static bool loaded;
    pthread_mutex_lock(&lock);
    status_t st = loaded ? ST_OK : load(&library, e);
    loaded = st == ST_OK;
    pthread_mutex_unlock(&lock);
    *ret = &library;
    return st;
}

status_t nccl_status(const struct nccl_library *nccl, ncclResult_t result, const char *what, struct err *e) {
    if (nccl_goes_on(result))
        return ST_OK;
    const char *why = nccl->ncclGetLastError(NULL);
    const status_t st = result == ncclRemoteError || result == ncclSystemError ? ST_UNAVAILABLE
                        : result == ncclInvalidUsage                           ? ST_FAILED_PRECONDITION
                                                                               : ST_INTERNAL;
    return err_set(e, st, "%s: %s%s%s", what, nccl->ncclGetErrorString(result), why && *why ? ": " : "",
                   why ? why : "");
}

static void blobs_done(struct bytes *blobs, int n) {
    for (int r = 0; r < n; r++)
        bytes_done(&blobs[r]);
    free(blobs);
}

status_t nccl_share_id(const struct nccl_library *nccl, const struct device_gang *gang, ncclUniqueId *ret,
                       struct err *e) {
    const int rank = gang->rank, world_size = gang->world_size;
    struct bytes *all = alloc_zeroed((size_t)world_size, sizeof *all);
    for (int r = 0; r < world_size; r++)
        bytes_init(&all[r], sizeof *ret);
    status_t st = rank == 0 ? nccl_status(nccl, nccl->ncclGetUniqueId(ret), "make an NCCL id for the ranks", e) : ST_OK;
    if (st == ST_OK)
        st = gang->rendezvous(gang->rendezvous_ctx, ret, rank == 0 ? sizeof *ret : 0, all, e);
    if (st == ST_OK && all[0].len != sizeof *ret)
        st = err_set(e, ST_INTERNAL, "rank 0 sent an NCCL id of %zu bytes, not %zu", all[0].len, sizeof *ret);
    if (st == ST_OK)
        memcpy(ret, all[0].data, sizeof *ret);
    blobs_done(all, world_size);
    return st;
}

static status_t variable_set(const char *name, const char *value, struct err *e) {
    return !*value || setenv(name, value, 1) == 0 ? ST_OK : err_errno(e, "set %s=%s", name, value);
}

static bool is_set(const char *value) { return value && *value; }

static status_t algorithm_set(const char *algorithm, struct err *e) {
    char by_call[64];
    snprintf(by_call, sizeof by_call, "allreduce:%s", algorithm);
    if (strncmp(algorithm, "Collnet", strlen("Collnet")) == 0) /* off by default */
        TRY(variable_set("NCCL_COLLNET_ENABLE", "1", e));
    return variable_set("NCCL_ALGO", by_call, e);
}

static status_t protocol_set(const char *protocol, struct err *e) {
    char by_call[64];
    snprintf(by_call, sizeof by_call, "allreduce:%s;reduce:%s", protocol, protocol);
    return variable_set("NCCL_PROTO", by_call, e);
}

status_t nccl_tune(const struct nccl_library *nccl, const struct collective_tuning *tuning, struct err *e) {
    char bytes[24] = "";
    if (tuning->buffer_bytes)
        snprintf(bytes, sizeof bytes, "%" PRId64, tuning->buffer_bytes);
    TRY(variable_set("NCCL_BUFFSIZE", bytes, e));
    if ((is_set(tuning->algorithm) || is_set(tuning->protocol)) && nccl->version < VERSION_BY_CALL)
        return err_set(e, ST_FAILED_PRECONDITION,
                       "parallel.nccl: an algorithm or a protocol for sums needs NCCL 2.24 or later, and this host has "
                       "%d.%d",
                       nccl->version / 10000, nccl->version / 100 % 100);
    if (is_set(tuning->algorithm))
        TRY(algorithm_set(tuning->algorithm, e));
    return is_set(tuning->protocol) ? protocol_set(tuning->protocol, e) : ST_OK;
}
