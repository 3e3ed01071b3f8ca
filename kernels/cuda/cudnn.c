#include "kernels/cuda/cudnn_library.h"

#include <dlfcn.h>
#include <string.h>

/* cudnnCreate's error comes with no sentence of its own. */
static status_t refused(struct cudnn *c, const char *what, cudnnStatus_t st, struct err *e) {
    char reason[256] = "";
    c->cudnnGetLastErrorString(reason, sizeof reason);
    return err_set(e, ST_INTERNAL, "cuDNN %s: status %d%s%s", what, (int)st, *reason ? ": " : "", reason);
}

static status_t load(struct cudnn *c, struct err *e) {
    /* NODELETE: its kernels are registered with the driver, and its parts, opened by itself, stay. */
    c->library = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!c->library)
        return err_set(e, ST_FAILED_PRECONDITION, "cuDNN cannot be loaded: %s", dlerror());
#define LOAD(f)                                                                                                        \
    *(void **)&c->f = dlsym(c->library, #f);                                                                           \
    if (!c->f)                                                                                                         \
        return err_set(e, ST_FAILED_PRECONDITION, "libcudnn.so.9 has no function " #f);
    CUDNN_FUNCTIONS(LOAD)
#undef LOAD
    return ST_OK;
}

status_t cudnn_check(struct err *e) {
    CLEANUP(cudnn_closep) struct cudnn *c = calloc(1, sizeof *c);
    return c ? load(c, e) : err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for cuDNN's plans");
}

status_t cudnn_open(void *stream, struct cudnn **ret, struct err *e) {
    CLEANUP(cudnn_closep) struct cudnn *c = calloc(1, sizeof *c);
    if (!c)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for cuDNN's plans");
    TRY(load(c, e));
    c->stream = stream;
    cudnnStatus_t st = c->cudnnCreate(&c->handle);
    if (st == CUDNN_STATUS_SUCCESS)
        st = c->cudnnSetStream(c->handle, stream);
    if (st != CUDNN_STATUS_SUCCESS)
        return refused(c, "does not start on this device", st, e);
    *ret = take_ptr(&c);
    return ST_OK;
}

status_t cudnn_open_deviceless(const char *properties, struct cudnn **ret, struct err *e) {
    CLEANUP(cudnn_closep) struct cudnn *c = calloc(1, sizeof *c);
    if (!c)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for cuDNN's plans");
    TRY(load(c, e));
    cudnnStatus_t st = c->cudnnBackendCreateDescriptor(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR, &c->properties);
    if (st == CUDNN_STATUS_SUCCESS)
        st = c->cudnnBackendSetAttribute(c->properties, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR,
                                         (int64_t)strlen(properties) + 1, properties);
    if (st == CUDNN_STATUS_SUCCESS)
        st = c->cudnnBackendFinalize(c->properties);
    if (st != CUDNN_STATUS_SUCCESS)
        return refused(c, "does not take the device's properties", st, e);
    *ret = take_ptr(&c);
    return ST_OK;
}

struct cudnn *cudnn_close(struct cudnn *c) {
    if (!c)
        return NULL;
    for (int i = 0; i < CUDNN_PLANS_MOST; i++)
        c->entries[i].plan = cudnn_plan_free(c, c->entries[i].plan);
    if (c->properties)
        c->cudnnBackendDestroyDescriptor(c->properties);
    if (c->handle)
        c->cudnnDestroy(c->handle);
    if (c->library)
        dlclose(c->library);
    free(c);
    return NULL;
}

size_t cudnn_version(const struct cudnn *c) { return c->cudnnGetVersion(); }
void *cudnn_stream(const struct cudnn *c) { return c->stream; }

static bool key_equal(const struct cudnn_key *a, const struct cudnn_key *b) {
    return a->pass == b->pass && a->precision == b->precision && memcmp(a->dims, b->dims, sizeof a->dims) == 0;
}

static struct cudnn_entry *entry_of(struct cudnn *c, const struct cudnn_key *key) {
    struct cudnn_entry *oldest = &c->entries[0];
    for (int i = 0; i < CUDNN_PLANS_MOST; i++) {
        if (c->entries[i].used && key_equal(&c->entries[i].key, key))
            return &c->entries[i];
        if (c->entries[i].used < oldest->used)
            oldest = &c->entries[i];
    }
    oldest->plan = cudnn_plan_free(c, oldest->plan);
    *oldest = (struct cudnn_entry){ .key = *key };
    return oldest;
}

status_t cudnn_plan_find(struct cudnn *c, const struct cudnn_key *key, cudnn_build_fn *build,
                         const struct cudnn_plan **ret, struct err *e) {
    struct cudnn_entry *t = entry_of(c, key);
    if (!t->used) {
        const status_t st = build(c, key, &t->plan, e);
        if (st != ST_OK && st != ST_UNIMPLEMENTED)
            return st;
    }
    t->used = ++c->clock;
    if (!t->plan)
        return err_set(e, ST_UNIMPLEMENTED, "cuDNN has no engine for this shape");
    *ret = t->plan;
    return ST_OK;
}
