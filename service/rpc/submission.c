/* The checks of a submission, from cheap to expensive. Problems are collected; errors end the checks.
 *
 *   spec        spec_resolve fills in the defaults and checks each field. After a problem nothing else is checked
 *   directory   checkpoint.directory must be below a root of this controller, and must not use its reserved names
 *   secrets     those that program.secrets and stores name must exist, and this controller must have their keys
 *   origin      the checkpoint of a fork or of train.init_from must exist. A fork is compared with the spec of the job
 *               that wrote it
 *   slots       attached executors must have enough slots in total, unless the client is willing to wait for hosts
 *   hosts       an executor reads the data and the folders. It is asked only if there is no problem so far, because
 *               this check may take seconds; ValidateJob asks anyway, because it reports all problems
 *
 * A quarter of the remaining time is kept for the call itself: hosts get three quarters of it. */
#include "service/rpc/submission.h"

#include "api/spec/fork.h"
#include "api/spec/problems.h"
#include "api/spec/spec.h"
#include "base/alloc.h"
#include "base/cluster_mark.h"
#include "service/controller/attempt_secrets.h"
#include "service/rpc/name.h"
#include "service/store/checkpoint.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

void submission_done(struct submission *s) {
    s->spec = spec_free(s->spec);
    spec_problems_done(&s->problems);
    host_answer_done(&s->hosts);
    free(s->init_directory);
    free(s->fork_directory);
}

/* ---- the origin ---- */

/* Reads the spec of a stored job and resolves it again, so that a field that an older version did not know gets its
 * default. A spec that this version refuses is returned as it was stored, with the defaults of its own version. */
static status_t stored_spec(struct controller *c, int64_t job, Trainyard__V1__JobSpec **ret, struct err *e) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    CLEANUP(spec_freep) Trainyard__V1__JobSpec *stored = NULL;
    struct store_job row;
    TRY(store_job_get(controller_store(c), m, job, &row, e));
    stored = trainyard__v1__job_spec__unpack(NULL, row.spec_bytes, row.spec);
    if (!stored)
        return err_set(e, ST_INTERNAL, "the stored spec of jobs/%lld cannot be read", (long long)job);
    if (spec_resolve(stored, ret, NULL, NULL) != ST_OK)
        *ret = take_ptr(&stored);
    return ST_OK;
}

/* The steps of a fork are counted from the step of the checkpoint. */
static status_t judge_fork(struct controller *c, const char *fork, struct submission *s, struct err *e) {
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    struct store_checkpoint row;
    int64_t job, id, step;
    status_t st = name_fork(fork, &job, &id, &step, e);
    if (st == ST_OK)
        st = id          ? store_checkpoint_get(controller_store(c), m, job, id, &row, e)
             : step >= 0 ? store_checkpoint_at(controller_store(c), m, job, step, &row, e)
                         : store_checkpoint_newest(controller_store(c), m, job, &row, e);
    CLEANUP(spec_freep) Trainyard__V1__JobSpec *theirs = NULL;
    if (st == ST_OK)
        st = stored_spec(c, job, &theirs, e);
    if (st != ST_OK)
        return err_prefix(e, st, "fork: ");
    spec_check_fork(s->spec, &(struct spec_origin){ .spec = theirs, .job = job, .step = row.step }, &s->problems);
    s->origin = (struct store_origin){ .job = job, .checkpoint = row.id };
    s->fork_directory = alloc_copy_text(row.directory);
    return ST_OK;
}

/* A host copies it with the keys of the new job. */
static void judge_origin_store(struct submission *s) {
    const bool store = spec_checkpoints_in_store(s->spec), s3 = s->spec->stores && s->spec->stores->s3;
    if (s->init_directory && strncmp(s->init_directory, "s3://", 5) == 0 && !s3)
        problem_add(
            &s->problems,
            "train.init_from: that checkpoint is in a store (%.200s), so the job needs stores.s3, with which its "
            "hosts reach it",
            s->init_directory);
    else if (!store && s->fork_directory && strncmp(s->fork_directory, "s3://", 5) == 0)
        problem_add(&s->problems,
                    "fork: that checkpoint is in a store, so the job needs checkpoint.store and stores.s3");
}

static status_t judge_origin(struct controller *c, const char *fork, struct submission *s, struct err *e) {
    s->origin = (struct store_origin){ .weights_only = true };
    if (*fork)
        return judge_fork(c, fork, s, e);
    if (spec_is_program(s->spec) ||
        !spec_checkpoint_name(s->spec->train->init_from, &s->origin.job, &s->origin.checkpoint))
        return ST_OK;
    CLEANUP(store_memory_freep) struct store_memory *m = store_memory_new();
    struct store_checkpoint row;
    status_t st = store_checkpoint_get(controller_store(c), m, s->origin.job, s->origin.checkpoint, &row, e);
    if (st != ST_OK)
        return err_prefix(e, st, "train.init_from: ");
    s->init_directory = alloc_copy_text(row.directory);
    return ST_OK;
}

/* ---- hosts ---- */

static status_t judge_slots(struct controller *c, const struct submission_request *request, struct submission *s,
                            struct err *e) {
    const struct store_job job = { .world_size = spec_world_size(s->spec),
                                   .max_world_size = spec_max_world_size(s->spec),
                                   .accelerator = s->spec->resources->accelerator };
    const struct scheduler_job_row row = scheduler_row_of(&job);
    struct err why;
    if (request->wait_for_hosts)
        return ST_OK;
    status_t st = controller_fits(c, &row, request->deadline, &why);
    if (st == ST_FAILED_PRECONDITION) {
        problem_add(&s->problems, "%s: %s; add --wait-for-hosts to let the job wait for more",
                    job.world_size > 1 ? "parallel" : "resources.accelerator", why.msg);
        return ST_OK;
    }
    return st == ST_OK ? ST_OK : err_set(e, st, "%s", why.msg);
}

/* ---- the directory for checkpoints ---- */

/* Refuses a directory that contains a name reserved by the service: a number is the folder of a job, and a folder with
 * the name of the cluster's mark would prevent the service from creating that file. */
static status_t check_parts(const char *path, const char *name, struct err *e) {
    for (const char *part = name; *part; part += strspn(part, "/")) {
        const size_t n = strcspn(part, "/");
        if (strspn(part, "0123456789") == n)
            return err_set(e, ST_PERMISSION_DENIED, "'%s' has a number as a folder's name, as jobs have", path);
        if (n == sizeof CLUSTER_MARK_NAME - 1 && strncmp(part, CLUSTER_MARK_NAME, n) == 0)
            return err_set(e, ST_PERMISSION_DENIED, "'%s' has '" CLUSTER_MARK_NAME "' as a folder's name", path);
        part += n;
    }
    return ST_OK;
}

/* A folder that is refused here is not checked by hosts, so the problem is reported once. */
static void judge_directory(struct controller *c, struct submission *s) {
    char path[PATH_MAX];
    struct err why;
    const char *uri = s->spec->checkpoint->directory, *root, *name;
    if (!*uri)
        return;
    status_t st = spec_uri_path(uri, path, sizeof path, &why);
    if (st == ST_OK)
        st = roots_locate(&controller_place(c)->roots, path, &root, &name, &why);
    if (st == ST_OK)
        st = check_parts(path, name, &why);
    s->directory_refused = st != ST_OK;
    if (st != ST_OK)
        problem_add(&s->problems, "checkpoint.directory: %s", why.msg);
}

static void add_problem(void *ctx, const char *sentence) { problem_add(ctx, "%s", sentence); }

/* A checkpoint in a store is not read before the job runs. */
static const char *fork_folder(const struct submission *s) {
    return s->fork_directory && *s->fork_directory == '/' ? s->fork_directory : "";
}

/* Hosts are not asked about a job that is refused already, unless the caller wants all problems. */
static status_t judge_hosts(struct controller *c, const struct submission_request *request, struct submission *s,
                            struct err *e) {
    const int64_t left = request->deadline - clock_mono_ms();
    const struct host_check check = { .spec = s->spec,
                                      .skip_folder = s->directory_refused || spec_checkpoints_in_store(s->spec),
                                      .init_directory = s->init_directory ? s->init_directory : "",
                                      .fork_directory = fork_folder(s),
                                      .deadline = request->deadline - left / 4,
                                      .plan = request->plan && !spec_is_program(s->spec) };
    if (request->skip_check || (s->problems.n && !request->plan))
        return ST_OK;
    TRY(request->plan ? host_check_ask(c, &check, &s->hosts, e) : host_check_remember(c, &check, &s->hosts, e));
    for (size_t i = 0; i < s->hosts.problems.n; i++)
        problem_add(&s->problems, "%s", s->hosts.problems.lines[i]);
    return ST_OK;
}

status_t submission_judge(struct controller *c, const struct submission_request *request, struct submission *ret,
                          struct err *e) {
    int64_t epoch;
    TRY(controller_leads(c, &epoch, e));
    if (!request->spec)
        return err_set(e, ST_INVALID_ARGUMENT, "spec: it is missing");
    status_t st = spec_resolve(request->spec, &ret->spec, &ret->problems, e);
    if (st != ST_OK)
        return st == ST_INVALID_ARGUMENT && ret->problems.n ? ST_OK : st;
    judge_directory(c, ret);
    TRY(attempt_secrets_check(controller_store(c), controller_keyring(c), ret->spec, add_problem, &ret->problems, e));
    TRY(judge_origin(c, request->fork, ret, e));
    judge_origin_store(ret);
    TRY(judge_slots(c, request, ret, e));
    return judge_hosts(c, request, ret, e);
}
