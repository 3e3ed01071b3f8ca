#include "executor/program/environment.h"

#include "base/alloc.h"
#include "base/cleanup.h"
#include "executor/program/image.h"
#include "executor/program/launcher.h"
#include "executor/worker/user.h"

#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct list {
    char **items; /* NULL-terminated */
    size_t n;
};

/* Replaces a variable of the same name. */
static void put(struct list *l, const char *name, const char *value) {
    const size_t n = strlen(name);
    char *text = alloc_format("%s=%s", name, value);
    for (size_t i = 0; i < l->n; i++)
        if (strncmp(l->items[i], text, n + 1) == 0) {
            free(l->items[i]);
            l->items[i] = text;
            return;
        }
    l->items = alloc_resize(l->items, l->n + 2, sizeof *l->items);
    l->items[l->n++] = text;
    l->items[l->n] = NULL;
}

static void take_out(struct list *l, const char *name) {
    const size_t n = strlen(name);
    for (size_t i = 0; i < l->n; i++)
        if (strncmp(l->items[i], name, n) == 0 && l->items[i][n] == '=') {
            free(l->items[i]);
            l->items[i] = l->items[--l->n];
            l->items[l->n] = NULL;
            return;
        }
}

static void put_number(struct list *l, const char *name, int64_t value) {
    char text[24];
    snprintf(text, sizeof text, "%" PRId64, value);
    put(l, name, text);
}

/* NAME=value */
static void put_text(struct list *l, const char *text) {
    CLEANUP(freep) char *name = alloc_copy_text(text);
    char *value = strchr(name, '=');
    if (!value)
        return;
    *value = '\0';
    put(l, name, value + 1);
}

static void put_own(struct list *l) {
    for (char **at = environ; *at; at++)
        put_text(l, *at);
}

static void put_texts(struct list *l, const char *texts) {
    for (; texts && *texts; texts += strlen(texts) + 1)
        put_text(l, texts);
}

static void put_secret(struct list *l, const Trainyard__V1__AttemptSecret *secret) {
    char *value = alloc_zeroed(secret->value.len + 1, 1);
    if (secret->value.len > 0)
        memcpy(value, secret->value.data, secret->value.len);
    put(l, secret->variable, value);
    explicit_bzero(value, secret->value.len);
    free(value);
}

/* An address of IPv6 as torchrun reads it. */
static void host_write(const char *address, char *ret, size_t bytes) {
    const bool six = strchr(address, ':') && *address != '[';
    snprintf(ret, bytes, six ? "[%s]" : "%s", address);
}

/* What torchrun reads: the defaults of its options. Variables of env:// are not set: a command that torchrun or another
 * launcher does not start must not take itself for one of its ranks. */
static void put_launcher(struct list *l, const Trainyard__V1__WorkerStart *start, const struct place *place) {
    char host[sizeof place->master_address + 2], endpoint[sizeof host + 16];
    host_write(place->master_address, host, sizeof host);
    snprintf(endpoint, sizeof endpoint, "%s:%d", host, place->master_port);
    put_number(l, "PET_NNODES", place->groups);
    put_number(l, "PET_NODE_RANK", place->group_rank);
    put_number(l, "PET_NPROC_PER_NODE", place->local_world_size);
    put(l, "PET_MASTER_ADDR", host);
    put_number(l, "PET_MASTER_PORT", place->master_port);
    put(l, "PET_RDZV_BACKEND", "static");
    put(l, "PET_RDZV_ENDPOINT", endpoint);
    put_number(l, "PET_RDZV_ID", start->attempt->job);
    if (*place->gpus)
        put(l, "CUDA_VISIBLE_DEVICES", place->gpus);
}

/* The values that torchrun sets after restarts: attempt N is restart N - 1. */
static void put_torchrun(struct list *l, const Trainyard__V1__WorkerStart *start, const struct place *place,
                         int max_restarts) {
    const Trainyard__V1__AttemptStart *at = start->attempt;
    char run[24];
    snprintf(run, sizeof run, "%" PRId64, at->job);
    put(l, "MASTER_ADDR", place->master_address);
    put_number(l, "MASTER_PORT", place->master_port);
    put_number(l, "RANK", start->rank);
    put_number(l, "WORLD_SIZE", at->world_size);
    put_number(l, "LOCAL_RANK", place->local_rank);
    put_number(l, "LOCAL_WORLD_SIZE", place->local_world_size);
    put_number(l, "GROUP_RANK", place->group_rank);
    put_number(l, "GROUP_WORLD_SIZE", place->groups);
    put(l, "ROLE_NAME", "default");
    put_number(l, "ROLE_RANK", start->rank);
    put_number(l, "ROLE_WORLD_SIZE", at->world_size);
    put(l, "TORCHELASTIC_RUN_ID", run);
    put_number(l, "TORCHELASTIC_RESTART_COUNT", at->attempt - 1);
    put_number(l, "TORCHELASTIC_MAX_RESTARTS", max_restarts);
}

static const char *value_of(const struct list *l, const char *name) {
    return l->n > 0 ? environment_value(l->items, name) : NULL;
}

static bool has(const struct list *l, const char *name) { return value_of(l, name) != NULL; }

static bool wanted(const struct list *l, const struct tracking_variable *v) {
    for (const char *const *other = v->unless; *other; other++)
        if (has(l, *other))
            return false;
    return !has(l, v->name);
}

/* All are compared with the user's variables before one is put. */
static void put_tracking(struct list *l, const struct tracking *tracking) {
    const struct tracking_variable *all;
    const size_t n = tracking_variables(tracking, &all);
    CLEANUP(freep) bool *put_it = alloc_zeroed(n, sizeof *put_it);
    for (size_t i = 0; i < n; i++)
        put_it[i] = wanted(l, &all[i]);
    for (size_t i = 0; i < n; i++)
        if (put_it[i])
            put(l, all[i].name, all[i].value);
}

/* All processes of a host would use NCCL's default port, and the first of them would answer for its job alone. */
static void put_nccl(struct list *l, int port) {
    char address[32];
    snprintf(address, sizeof address, "localhost:%d", port);
    if (port > 0 && !has(l, "NCCL_RAS_ADDR"))
        put(l, "NCCL_RAS_ADDR", address);
}

/* A proxy of the user's cannot reach the rank's server. Of the two names, a client reads the one that is set. */
static void put_no_proxy(struct list *l) {
    static const char *const proxies[] = { "http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY" };
    static const char *const names[] = { "no_proxy", "NO_PROXY" };
    const bool given = has(l, names[0]) || has(l, names[1]);
    bool proxy = false;
    for (size_t i = 0; i < sizeof proxies / sizeof *proxies; i++)
        proxy |= has(l, proxies[i]);
    for (size_t i = 0; proxy && i < sizeof names / sizeof *names; i++) {
        const char *old = value_of(l, names[i]);
        CLEANUP(freep) char *value = old ? alloc_format("%s,127.0.0.1", old) : alloc_copy_text("127.0.0.1");
        if (old || !given)
            put(l, names[i], value);
    }
}

/* As its activate script. */
static void put_python(struct list *l, const char *environment) {
    const char *search = value_of(l, "PATH");
    CLEANUP(freep) char *path = alloc_format("%s/bin:%s", environment, search ? search : "/usr/bin:/bin");
    put(l, "PATH", path);
    put(l, "VIRTUAL_ENV", environment);
}

/* The driver's libraries come before those of the image, which are for another version of the kernel's module. */
static void put_image_gpus(struct list *l) {
    const char *gpus = value_of(l, "CUDA_VISIBLE_DEVICES"), *old = value_of(l, "LD_LIBRARY_PATH");
    if (!gpus || !*gpus)
        return;
    CLEANUP(freep)
    char *libraries = alloc_format(CONTAINER_GPU_LIBRARIES "%s%s", old && *old ? ":" : "", old ? old : "");
    CLEANUP(freep) char *path = alloc_format("%s:" CONTAINER_GPU_PROGRAMS, value_of(l, "PATH"));
    put(l, "LD_LIBRARY_PATH", libraries);
    put(l, "PATH", path);
}

static bool given_by_spec(const Trainyard__V1__JobSpec *spec, const char *name) {
    for (size_t i = 0; i < spec->program->n_environment; i++)
        if (strcmp(spec->program->environment[i]->key, name) == 0)
            return true;
    return false;
}

/* A cache of models that was there before. A library looks for it below XDG_CACHE_HOME, which put_caches changes. */
static void put_old_cache(struct list *l, const char *name, const char *below) {
    const char *home = value_of(l, "HOME");
    CLEANUP(freep) char *folder = alloc_format("%s/.cache/%s", home ? home : "", below);
    if (home && *home && !has(l, name) && access(folder, R_OK | X_OK) == 0)
        put(l, name, folder);
}

/* A library that keeps a cache below the home folder cannot write there in a sandbox, and some of them then fail. A
 * home folder that the spec names may be one that can be written. */
static void put_caches(struct list *l, const Trainyard__V1__JobSpec *spec, const struct scratch *scratch) {
    static const struct {
        const char *name, *below;
    } caches[] = {
        { "XDG_CACHE_HOME", "cache" },          { "TRITON_CACHE_DIR", "cache/triton" },
        { "NUMBA_CACHE_DIR", "cache/numba" },   { "TORCHINDUCTOR_CACHE_DIR", "cache/torchinductor" },
        { "MPLCONFIGDIR", "cache/matplotlib" },
    };
    if (given_by_spec(spec, "HOME"))
        return;
    if (!has(l, "XDG_CACHE_HOME")) {
        put_old_cache(l, "HF_HOME", "huggingface");
        put_old_cache(l, "TORCH_HOME", "torch");
    }
    for (size_t i = 0; i < sizeof caches / sizeof *caches; i++) {
        CLEANUP(freep) char *folder = alloc_format("%s/%s", scratch->temporary, caches[i].below);
        if (!has(l, caches[i].name))
            put(l, caches[i].name, folder);
    }
}

char **environment_new(const Trainyard__V1__WorkerStart *start, const struct place *place,
                       const struct scratch *scratch, const struct tracking *tracking,
                       const struct program_paths *paths) {
    const Trainyard__V1__JobSpec *spec = start->attempt->spec;
    struct list l = { alloc_zeroed(1, sizeof(char *)), 0 };
    put_own(&l);
    put(&l, "PYTHONFAULTHANDLER", "1");
    if (start->sandbox || paths->image >= 0) /* the executor's cannot be written to */
        put(&l, "TMPDIR", scratch->temporary);
    if (paths->image >= 0) {
        put(&l, "PATH", IMAGE_PATH);
        take_out(&l, "LD_LIBRARY_PATH"); /* the folders of --library-path are not in the image */
    }
    if (user_group_is_private() || paths->image >= 0) {
        put(&l, "HOME", scratch->directory); /* no database of the host, or of the image, names the user */
        put(&l, "LOGNAME", "job");
        put(&l, "USER", "job");
    }
    put_texts(&l, paths->image_variables);
    for (size_t i = 0; i < spec->program->n_environment; i++)
        put(&l, spec->program->environment[i]->key, spec->program->environment[i]->value);
    for (size_t i = 0; i < start->attempt->n_secrets; i++)
        put_secret(&l, start->attempt->secrets[i]);
    if (start->sandbox)
        put_caches(&l, spec, scratch);
    if (launcher_is_host(spec->program))
        put_launcher(&l, start, place);
    else
        put_torchrun(&l, start, place, spec->retry->max_restarts);
    put_number(&l, "TRAINYARD_JOB", start->attempt->job);
    put_number(&l, "TRAINYARD_ATTEMPT", start->attempt->attempt);
    put_number(&l, "TRAINYARD_RANK", start->rank);
    put(&l, "TORCHELASTIC_ERROR_FILE", scratch->error_file);
    put(&l, "TRAINYARD_METRICS", scratch->metrics);
    put(&l, "TRAINYARD_WORK", scratch->work);
    put_nccl(&l, paths->nccl_port);
    put_tracking(&l, tracking);
    put_no_proxy(&l);
    if (paths->python)
        put_python(&l, paths->python);
    if (paths->image >= 0)
        put_image_gpus(&l);
    if (paths->code)
        put(&l, "TRAINYARD_CODE", paths->code);
    if (paths->stop)
        put(&l, "TRAINYARD_STOP", paths->stop);
    put(&l, "TRAINYARD_CHECKPOINTS", paths->checkpoints ? paths->checkpoints : "");
    put(&l, "TRAINYARD_RESUME", paths->resume ? paths->resume : "");
    return l.items;
}

const char *environment_value(char *const *environment, const char *name) {
    const size_t n = strlen(name);
    for (char *const *at = environment; *at; at++)
        if (strncmp(*at, name, n) == 0 && (*at)[n] == '=')
            return *at + n + 1;
    return NULL;
}

char **environment_free(char **environment) {
    for (char **at = environment; at && *at; at++) {
        explicit_bzero(*at, strlen(*at)); /* it may have a secret */
        free(*at);
    }
    free(environment);
    return NULL;
}
