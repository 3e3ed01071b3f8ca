#include "executor/engine/collective/nccl_library.h"

#include <dlfcn.h>
#include <inttypes.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static const char NAME[] = "libnccl.so.2";
/* The first whose communicators split and do not block. */
enum { VERSION_LEAST = 21800 };

static status_t function_find(void *handle, const char *name, void **ret, struct err *e) {
    *ret = dlsym(handle, name);
    return *ret ? ST_OK : err_set(e, ST_FAILED_PRECONDITION, "%s has no %s", NAME, name);
}

static status_t load(struct nccl_library *nccl, struct err *e) {
    void *handle = dlopen(NAME, RTLD_NOW | RTLD_LOCAL);
    if (!handle)
        return err_set(e, ST_FAILED_PRECONDITION, "ranks on CUDA talk by NCCL, which cannot be loaded: %s", dlerror());
#define NCCL_FIND(f) TRY(function_find(handle, #f, (void **)&nccl->f, e));
    NCCL_FUNCTIONS(NCCL_FIND)
#undef NCCL_FIND
    int version = 0;
    TRY(nccl_status(nccl, nccl->ncclGetVersion(&version), "ask NCCL for its version", e));
    return version >= VERSION_LEAST ? ST_OK
                                    : err_set(e, ST_FAILED_PRECONDITION, "NCCL %d.%d is older than 2.18",
                                              version / 10000, version / 100 % 100);
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
    if (result == ncclSuccess || result == ncclInProgress)
        return ST_OK;
    const char *why = nccl->ncclGetLastError(NULL);
    return err_set(e, result == ncclRemoteError || result == ncclSystemError ? ST_UNAVAILABLE : ST_INTERNAL,
                   "%s: %s%s%s", what, nccl->ncclGetErrorString(result), why && *why ? ": " : "", why ? why : "");
}

static void blobs_done(struct bytes *blobs, int n) {
    for (int r = 0; r < n; r++)
        bytes_done(&blobs[r]);
    free(blobs);
}

status_t nccl_meet(const struct nccl_library *nccl, const struct device_gang *gang, ncclUniqueId *ret, struct err *e) {
    const int rank = gang->rank, world_size = gang->world_size;
    struct bytes *all = calloc((size_t)world_size, sizeof *all);
    if (!all)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the ids of %d ranks", world_size);
    for (int r = 0; r < world_size; r++)
        bytes_init(&all[r], sizeof *ret);
    status_t st = rank == 0 ? nccl_status(nccl, nccl->ncclGetUniqueId(ret), "make an id for the ranks to meet by", e)
                            : ST_OK;
    if (st == ST_OK)
        st = gang->exchange(gang->exchange_ctx, ret, rank == 0 ? sizeof *ret : 0, all, e);
    if (st == ST_OK && all[0].len != sizeof *ret)
        st = err_set(e, ST_INTERNAL, "rank 0 sent an NCCL id of %zu bytes, not %zu", all[0].len, sizeof *ret);
    if (st == ST_OK)
        memcpy(ret, all[0].data, sizeof *ret);
    blobs_done(all, world_size);
    return st;
}

static status_t variable_set(const char *name, const char *value, struct err *e) {
    return !value || !*value || setenv(name, value, 1) == 0 ? ST_OK : err_errno(e, "set %s=%s", name, value);
}

status_t nccl_tune(const struct collective_tuning *tuning, struct err *e) {
    char bytes[24] = "";
    if (tuning->buffer_bytes)
        snprintf(bytes, sizeof bytes, "%" PRId64, tuning->buffer_bytes);
    TRY(variable_set("NCCL_BUFFSIZE", bytes, e));
    TRY(variable_set("NCCL_ALGO", tuning->algorithm, e));
    return variable_set("NCCL_PROTO", tuning->protocol, e);
}
