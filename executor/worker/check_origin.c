#include "api/spec/spec.h"
#include "base/cleanup.h"
#include "base/cluster_mark.h"
#include "base/roots.h"
#include "base/sha256.h"
#include "engine/checkpoint/reader.h"
#include "engine/pretrained/pretrained.h"
#include "executor/worker/check_parts.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The manifest alone; the digests of the rest are a rank's to prove, since that reads all of it. */
static status_t read_manifest(const struct roots *roots, const char *directory, struct model_config *ret,
                              char data_sha256[SHA256_HEX], struct err *e) {
    CLEANUP(freep) char *layout = NULL;
    TRY(checkpoint_layout(roots, directory, &layout, data_sha256, e));
    return model_from_layout(layout, ret, e);
}

static status_t compare_checkpoint(const struct roots *roots, const char *directory, const struct engine_config *c,
                                   struct err *e) {
    struct model_config theirs;
    TRY(read_manifest(roots, directory, &theirs, NULL, e));
    return pretrained_fits(&theirs, &c->model, e);
}

/* config.json and the headers of the weights. */
static status_t compare_folder(const struct engine_config *c, const struct graph *graph, struct err *e) {
    const struct pretrained_options options = { .roots = c->train.init_roots };
    CLEANUP(pretrained_closep) struct pretrained *from = NULL;
    TRY(pretrained_open(c->train.init_from, &options, &from, e));
    return pretrained_check(from, &c->model, graph, e);
}

static bool is_checkpoint(const struct roots *roots, const char *directory) {
    char path[PATH_MAX + 16];
    snprintf(path, sizeof path, "%s/manifest.json", directory);
    return roots_has(roots, path);
}

static status_t judge_origin(struct check *k, const char *field, status_t st, const struct err *why, struct err *e) {
    if (st == ST_RESOURCE_EXHAUSTED || st == ST_INTERNAL)
        return err_set(e, st, "%s", why->msg);
    if (st != ST_OK)
        check_problem(k, st != ST_INVALID_ARGUMENT, "%s%s", field, why->msg);
    return ST_OK;
}

/* A checkpoint of the service, whose folder must not be another cluster's. */
static status_t check_owner(const struct check *k, const char *directory, struct err *e) {
    char folder[PATH_MAX];
    TRY(cluster_mark_folder(directory, 3, folder, sizeof folder, e));
    return check_cluster(k, folder, e);
}

static status_t check_init(struct check *k, const struct engine_config *c, const struct graph *graph, struct err *e) {
    const struct engine_train *t = &c->train;
    struct err why = { "" };
    const char *ours = k->request->init_directory;
    status_t st = *ours ? check_owner(k, ours, &why) : ST_OK;
    if (st == ST_OK)
        st = *ours ? compare_checkpoint(k->request->checkpoint_roots, ours, c, &why)
             : is_checkpoint(t->init_roots, t->init_from) ? compare_checkpoint(t->init_roots, t->init_from, c, &why)
                                                          : compare_folder(c, graph, &why);
    return judge_origin(k, "train.init_from: ", st, &why, e);
}

/* That its model is the origin's was seen when its spec was compared with the origin's. */
static status_t check_fork(struct check *k, const char *data_sha256, struct err *e) {
    struct model_config theirs;
    char data[SHA256_HEX] = "";
    struct err why = { "" };
    status_t st = check_owner(k, k->request->fork_directory, &why);
    if (st == ST_OK)
        st = read_manifest(k->request->checkpoint_roots, k->request->fork_directory, &theirs, data, &why);
    if (st == ST_OK && *data_sha256 && !spec_may_change_data(k->request->spec) && strcmp(data, data_sha256) != 0)
        check_problem(k, true,
                      "data: it has changed since the checkpoint that the fork begins with (%.12s, then %.12s)",
                      data_sha256, data);
    return judge_origin(k, "the checkpoint that the fork begins with: ", st, &why, e);
}

status_t check_origin(struct check *k, const struct engine_config *c, const struct graph *graph,
                      const char *data_sha256, struct err *e) {
    if (*k->request->fork_directory)
        return check_fork(k, data_sha256, e);
    const bool begins = *k->request->init_directory || (c->train.init_from && *c->train.init_from);
    return begins ? check_init(k, c, graph, e) : ST_OK;
}
