#include "kernels/cuda/cudnn_library.h"
#include "kernels/cuda/fastest.h"

#include <assert.h>
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

void cudnn_choose_by_time(struct cudnn *c, struct choices *choices) {
    assert(c->clock == 0);
    c->choices = choices;
}

size_t cudnn_version(const struct cudnn *c) { return c->cudnnGetVersion(); }
void *cudnn_stream(const struct cudnn *c) { return c->stream; }

static bool key_equal(const struct cudnn_key *a, const struct cudnn_key *b) {
    return a->pass == b->pass && a->precision == b->precision && a->room == b->room &&
           memcmp(a->dims, b->dims, sizeof a->dims) == 0;
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

/* --- the fastest engine ---*/

bool cudnn_is_timed(const struct cudnn *c) { return c->choices != NULL; }

/* All but the engine. */
static struct engine_choice choice_of(const struct cudnn *c, const struct cudnn_key *key) {
    struct engine_choice choice = { .pass = (enum engine_pass)(key->pass - CUDNN_CONVOLUTION_FORWARD),
                                    .precision = key->precision,
                                    .version = (int64_t)cudnn_version(c),
                                    .room = key->room };
    _Static_assert(sizeof choice.dims == sizeof key->dims, "a key's numbers are a choice's");
    assert(choice.pass < ENGINE_PASSES);
    memcpy(choice.dims, key->dims, sizeof choice.dims);
    return choice;
}

const char *cudnn_chosen(const struct cudnn *c, const struct cudnn_key *key) {
    const struct engine_choice like = choice_of(c, key), *found = c->choices ? choices_engine(c->choices, &like) : NULL;
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

/* The others are freed. */
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
    if (!c->choices || cudnn_chosen(c, key))
        return ST_OK;
    for (const struct cudnn_plan *p = t->plan; p; p = p->next)
        ways++;
    struct trial trial = { c, t->plan, n, ids, pointers, workspace };
    struct engine_choice choice = choice_of(c, key);
    if (ways > 1)
        TRY(fastest(c->stream, ways, try_one, &trial, &best, e));
    keep(c, &t->plan, best);
    *plan = t->plan;
    memcpy(choice.name, t->plan->engine, sizeof choice.name);
    return choices_add_engine(c->choices, &choice, e);
}
