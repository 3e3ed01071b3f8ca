/* cuDNN as a library that a host may lack: loading it, and a cache of its plans.
 *
 * The functions are loaded by dlopen. A plan is a compiled engine for one key: pass, precision, shape and workspace.
 * The cache has CUDNN_MAX_PLANS entries and replaces the one that was used least recently. It also remembers that
 * cuDNN has no engine for a key, so that the question is asked once.
 *
 * The engine of a key is selected in two steps, because compiling needs no data and timing does. cudnn_plan_find
 * compiles the engine that the tuning cache names, else the first engines that fit. cudnn_plan_decide runs at the
 * first computation: if there are several candidates it times them with the real pointers, keeps the fastest, and
 * records its name in the tuning cache, so that a resumed run uses the same engine. */
#include "kernels/cuda/lib/autotune.h"

#include "base/alloc.h"
#include "kernels/cuda/lib/cudnn_library.h"

#include <assert.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* cudnnCreate's status has no text of its own, so the last error string is added. */
static status_t refused(struct cudnn *c, const char *what, cudnnStatus_t st, struct err *e) {
    char reason[256] = "";
    c->cudnnGetLastErrorString(reason, sizeof reason);
    return err_set(e, ST_INTERNAL, "cuDNN %s: status %d%s%s", what, (int)st, *reason ? ": " : "", reason);
}

static status_t load(struct cudnn *c, struct err *e) {
    /* NODELETE: the library's kernels stay registered with the driver, and the parts that it opens itself stay
     * loaded. */
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
    CLEANUP(cudnn_closep) struct cudnn *c = alloc_zeroed(1, sizeof *c);
    return load(c, e);
}

status_t cudnn_open(void *stream, struct cudnn **ret, struct err *e) {
    CLEANUP(cudnn_closep) struct cudnn *c = alloc_zeroed(1, sizeof *c);
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
    CLEANUP(cudnn_closep) struct cudnn *c = alloc_zeroed(1, sizeof *c);
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
    for (int i = 0; i < CUDNN_MAX_PLANS; i++)
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

void cudnn_use_tuning_cache(struct cudnn *c, struct tuning_cache *cache, bool timed) {
    assert(c->clock == 0);
    c->tuning_cache = cache;
    c->timed = timed;
}

size_t cudnn_version(const struct cudnn *c) { return c->cudnnGetVersion(); }
void *cudnn_stream(const struct cudnn *c) { return c->stream; }

static bool key_equal(const struct cudnn_key *a, const struct cudnn_key *b) {
    return a->pass == b->pass && a->precision == b->precision && a->workspace_bytes == b->workspace_bytes &&
           memcmp(a->dims, b->dims, sizeof a->dims) == 0;
}

static struct cudnn_entry *entry_of(struct cudnn *c, const struct cudnn_key *key) {
    struct cudnn_entry *oldest = &c->entries[0];
    for (int i = 0; i < CUDNN_MAX_PLANS; i++) {
        if (c->entries[i].used && key_equal(&c->entries[i].key, key))
            return &c->entries[i];
        if (c->entries[i].used < oldest->used)
            oldest = &c->entries[i];
    }
    /* A free entry has used = 0, so it is replaced before any other. */
    oldest->plan = cudnn_plan_free(c, oldest->plan);
    *oldest = (struct cudnn_entry){ .key = *key };
    return oldest;
}

/* A choice with all fields except the engine's name. */
static struct engine_choice choice_of(const struct cudnn *c, const struct cudnn_key *key) {
    static const enum engine_pass pass_of[] = { [CUDNN_ATTENTION_FORWARD] = ENGINE_ATTENTION,
                                                [CUDNN_ATTENTION_BACKWARD] = ENGINE_ATTENTION_BACKWARD,
                                                [CUDNN_ATTENTION_BACKWARD_FAST] = ENGINE_ATTENTION_BACKWARD,
                                                [CUDNN_CONVOLUTION_FORWARD] = ENGINE_FORWARD,
                                                [CUDNN_CONVOLUTION_BACKWARD_INPUT] = ENGINE_INPUT,
                                                [CUDNN_CONVOLUTION_BACKWARD_WEIGHT] = ENGINE_WEIGHT };
    struct engine_choice choice = { .pass = pass_of[key->pass],
                                    .precision = key->precision,
                                    .version = (int64_t)cudnn_version(c),
                                    .workspace_bytes = key->workspace_bytes };
    _Static_assert(sizeof choice.dims == sizeof key->dims, "a key's numbers are a choice's");
    memcpy(choice.dims, key->dims, sizeof choice.dims);
    return choice;
}

static status_t record(struct cudnn *c, const struct cudnn_key *key, const char *engine, struct err *e) {
    struct engine_choice choice = choice_of(c, key);
    snprintf(choice.name, sizeof choice.name, "%s", engine);
    return tuning_cache_add_engine(c->tuning_cache, &choice, e);
}

/* Leaves t without a plan if cuDNN has no engine now, or had none when the run began. */
static status_t build_plan(struct cudnn *c, struct cudnn_entry *t, cudnn_build_fn *build, struct err *e) {
    const char *chosen = cudnn_cached_engine(c, &t->key);
    if (chosen && strcmp(chosen, ENGINE_NONE) == 0)
        return ST_OK;
    const status_t st = build(c, &t->key, &t->plan, e);
    if (st != ST_UNIMPLEMENTED)
        return st;
    return c->tuning_cache && !chosen ? record(c, &t->key, ENGINE_NONE, e) : ST_OK;
}

status_t cudnn_plan_find(struct cudnn *c, const struct cudnn_key *key, cudnn_build_fn *build,
                         const struct cudnn_plan **ret, struct err *e) {
    struct cudnn_entry *t = entry_of(c, key);
    if (!t->used)
        TRY(build_plan(c, t, build, e));
    t->used = ++c->clock;
    if (!t->plan)
        return err_set(e, ST_UNIMPLEMENTED, "cuDNN has no engine for this shape");
    *ret = t->plan;
    return ST_OK;
}

/* --- the fastest engine ---*/

bool cudnn_is_timed(const struct cudnn *c) { return c->timed; }

const char *cudnn_cached_engine(const struct cudnn *c, const struct cudnn_key *key) {
    const struct engine_choice like = choice_of(c, key),
                               *found = c->tuning_cache ? tuning_cache_engine(c->tuning_cache, &like) : NULL;
    return found ? found->name : NULL;
}

struct trial {
    struct cudnn *library;
    const struct cudnn_plan *plans;
    int n;
    const int64_t *ids;
    void *const *pointers;
    void *workspace;
};

static bool try_one(void *ctx, int way) {
    const struct trial *t = ctx;
    const struct cudnn_plan *p = t->plans;
    while (way-- > 0)
        p = p->next;
    return cudnn_plan_run(t->library, p, t->n, t->ids, t->pointers, t->workspace, NULL) == ST_OK;
}

/* Keeps one plan and frees the others. */
static void keep(struct cudnn *c, struct cudnn_plan **plans, int which) {
    struct cudnn_plan **link = plans;
    while (which-- > 0)
        link = &(*link)->next;
    struct cudnn_plan *const kept = *link;
    *link = kept->next;
    kept->next = NULL;
    cudnn_plan_free(c, *plans);
    *plans = kept;
}

status_t cudnn_plan_decide(struct cudnn *c, const struct cudnn_key *key, int n, const int64_t *ids,
                           void *const *pointers, void *workspace, const struct cudnn_plan **plan, struct err *e) {
    struct cudnn_entry *t = entry_of(c, key);
    int ways = 0, best = 0;
    if (!c->tuning_cache || cudnn_cached_engine(c, key))
        return ST_OK;
    for (const struct cudnn_plan *p = t->plan; p; p = p->next)
        ways++;
    struct trial trial = { c, t->plan, n, ids, pointers, workspace };
    if (ways > 1)
        TRY(fastest(c->stream, ways, try_one, &trial, &best, e));
    keep(c, &t->plan, best);
    *plan = t->plan;
    return record(c, key, t->plan->engine, e);
}
