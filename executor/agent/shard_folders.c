#include "executor/agent/shard_folders.h"

#include "api/spec/data_uri.h"
#include "api/spec/spec.h"
#include "base/alloc.h"
#include "base/beneath.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/log.h"
#include "executor/agent/job_user.h"

#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { NAME_BYTES = 48 };

static const char FOLDER[] = "checkpoints";

static bool print(char ret[PATH_MAX], const char *folder, const char *name) {
    return snprintf(ret, PATH_MAX, "%s/%s", folder, name) < PATH_MAX;
}

static void name_of(int64_t job, int32_t attempt, char ret[NAME_BYTES]) {
    snprintf(ret, NAME_BYTES, "%" PRId64 "-%d", job, (int)attempt);
}

/* The executor's folder. */
static bool own_folder(const struct host *host, char ret[PATH_MAX]) {
    char all[PATH_MAX];
    return print(all, host->data_cache, FOLDER) && print(ret, all, directory_id(host->directory));
}

/* "step-7" of s3://.../step-7; NULL: it is no checkpoint in a store. */
static const char *step_of(const char *resume) {
    const char *slash = strrchr(resume, '/');
    const char *name = strncmp(resume, "s3://", 5) == 0 && slash ? slash + 1 : "";
    return strncmp(name, "step-", 5) == 0 && name[5] && strspn(name + 5, "0123456789") == strlen(name + 5) ? name
                                                                                                           : NULL;
}

char *shard_weights_pattern(const Trainyard__V1__JobSpec *spec, const char *init_directory) {
    const char *from = spec && spec->train && spec->train->init_from ? spec->train->init_from : "";
    if (strncmp(init_directory, "s3://", 5) == 0)
        return alloc_format("%s/*", init_directory);
    return data_uri_is_remote(from) ? alloc_format("%s/*.{json,safetensors}", from) : NULL;
}

/* An attempt that resumes has its weights. */
static bool has_weights(const Trainyard__V1__AttemptStart *order) {
    CLEANUP(freep)
    char *pattern = *order->resume_directory ? NULL : shard_weights_pattern(order->spec, order->init_directory);
    return pattern != NULL;
}

bool shard_folders_of(const struct host *host, const Trainyard__V1__AttemptStart *order, struct shard_folders *ret) {
    char own[PATH_MAX], name[NAME_BYTES], read[PATH_MAX];
    *ret = (struct shard_folders){ .local = "" };
    const bool writes = order->spec && spec_checkpoints_in_store(order->spec), weights = has_weights(order);
    const char *step = step_of(order->resume_directory);
    if (!order->spec || (!writes && !weights && !step) || !own_folder(host, own))
        return false;
    name_of(order->job, order->attempt, name);
    return print(ret->local, own, name) && (!writes || print(ret->written, ret->local, "written")) &&
           print(read, ret->local, "read") && (!step || print(ret->resume, read, step)) &&
           (!weights || print(ret->weights, ret->local, "weights"));
}

/* ---- making ---- */

static status_t give(const struct host *host, int64_t job, const char *path, struct err *e) {
    return chown(path, job_user_uid(host->options, job), (gid_t)-1) == 0
               ? ST_OK
               : err_errno(e, "give '%s' to the job's user", path);
}

static status_t make(const char *folder, const char *name, unsigned mode, struct err *e) {
    char path[PATH_MAX];
    if (!print(path, folder, name))
        return err_set(e, ST_INVALID_ARGUMENT, "--data-cache: the path is too long");
    return dir_make(path, mode, e);
}

/* Whether the attempt needs a folder. */
static bool is_needed(const Trainyard__V1__AttemptStart *order) {
    return order->spec &&
           (spec_checkpoints_in_store(order->spec) || step_of(order->resume_directory) || has_weights(order));
}

status_t shard_folders_make(const struct host *host, const Trainyard__V1__AttemptStart *order, struct err *e) {
    struct shard_folders f;
    char own[PATH_MAX];
    if (!is_needed(order))
        return ST_OK;
    if (*host->no_data.msg)
        return err_set(e, ST_FAILED_PRECONDITION, "%s: %s",
                       spec_checkpoints_in_store(order->spec) ? "checkpoint.store" : "train.init_from",
                       host->no_data.msg);
    if (!shard_folders_of(host, order, &f) || !own_folder(host, own))
        return err_set(e, ST_INVALID_ARGUMENT, "--data-cache: the path is too long");
    shard_folders_remove(host, order->job, order->attempt); /* of a number that a restored database gives again */
    TRY(make(host->data_cache, FOLDER, 0755, e));
    TRY(dir_make(own, 0755, e));
    TRY(dir_make(f.local, 0755, e));
    TRY(make(f.local, "read", 0755, e));
    if (!*f.written)
        return ST_OK;
    TRY(dir_make(f.written, 0700, e));
    return give(host, order->job, f.written, e);
}

static void sample_name(int64_t sample, char ret[NAME_BYTES]) { snprintf(ret, NAME_BYTES, "sample-%" PRId64, sample); }

status_t sample_folders_make(const struct host *host, int64_t sample, const char *uri, struct sample_folders *ret,
                             struct err *e) {
    char own[PATH_MAX], name[NAME_BYTES], read[PATH_MAX];
    const char *step = step_of(uri);
    if (!step)
        return err_set(e, ST_INVALID_ARGUMENT, "'%.300s' is not the folder of a checkpoint in a store", uri);
    sample_name(sample, name);
    if (!own_folder(host, own) || !print(ret->local, own, name) || !print(read, ret->local, "read") ||
        !print(ret->cache, ret->local, "cache") || !print(ret->step, read, step))
        return err_set(e, ST_INVALID_ARGUMENT, "--data-cache: the path is too long");
    TRY(make(host->data_cache, FOLDER, 0755, e));
    TRY(dir_make(own, 0755, e));
    TRY(dir_make(ret->local, 0755, e));
    TRY(dir_make(ret->cache, 0755, e));
    return dir_make(read, 0755, e);
}

/* ---- removal ---- */

static void remove_below(const char *folder, const char *name) {
    struct err why;
    CLEANUP(closep) int fd = open(folder, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && beneath_remove(fd, name, folder, &why) != ST_OK)
        log_event(LOG_WARN, "folder_kept", "folder", LOG_STR(folder), "reason", LOG_STR(why.msg), NULL);
}

void shard_folders_remove(const struct host *host, int64_t job, int32_t attempt) {
    char own[PATH_MAX], name[NAME_BYTES];
    name_of(job, attempt, name);
    if (*host->data_cache && own_folder(host, own))
        remove_below(own, name);
}

void sample_folders_remove(const struct host *host, int64_t sample) {
    char own[PATH_MAX], name[NAME_BYTES];
    sample_name(sample, name);
    if (*host->data_cache && own_folder(host, own))
        remove_below(own, name);
}

void shard_folders_begin(const struct host *host) {
    char all[PATH_MAX];
    if (*host->data_cache && print(all, host->data_cache, FOLDER))
        remove_below(all, directory_id(host->directory));
}
