#include "executor/agent/shard_folders.h"

#include "api/spec/spec.h"
#include "base/beneath.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/log.h"
#include "executor/agent/job_user.h"

#include <fcntl.h>
#include <inttypes.h>
#include <pwd.h>
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

bool shard_folders_of(const struct host *host, const Trainyard__V1__AttemptStart *order, struct shard_folders *ret) {
    char own[PATH_MAX], name[NAME_BYTES], read[PATH_MAX];
    *ret = (struct shard_folders){ .local = "" };
    if (!order->spec || !spec_checkpoints_in_store(order->spec) || !own_folder(host, own))
        return false;
    name_of(order->job, order->attempt, name);
    const char *step = step_of(order->resume_directory);
    return print(ret->local, own, name) && print(ret->written, ret->local, "written") &&
           print(read, ret->local, "read") && (!step || print(ret->resume, read, step));
}

/* ---- making ---- */

static status_t give(const struct host *host, int64_t job, const char *path, struct err *e) {
    const struct agent_options *o = host->options;
    const struct passwd *user = o->worker_user && !job_user_is_own(o) ? getpwnam(o->worker_user) : NULL;
    const uid_t uid = job_user_is_own(o) ? job_user_of(o, job) : user ? user->pw_uid : geteuid();
    return chown(path, uid, (gid_t)-1) == 0 ? ST_OK : err_errno(e, "give '%s' to the job's user", path);
}

static status_t make(const char *folder, const char *name, unsigned mode, struct err *e) {
    char path[PATH_MAX];
    if (!print(path, folder, name))
        return err_set(e, ST_INVALID_ARGUMENT, "--data-cache: the path is too long");
    return dir_make(path, mode, e);
}

status_t shard_folders_make(const struct host *host, const Trainyard__V1__AttemptStart *order, struct err *e) {
    struct shard_folders f;
    char own[PATH_MAX];
    if (!order->spec || !spec_checkpoints_in_store(order->spec))
        return ST_OK;
    if (*host->no_data.msg)
        return err_set(e, ST_FAILED_PRECONDITION, "checkpoint.store: %s", host->no_data.msg);
    if (!shard_folders_of(host, order, &f) || !own_folder(host, own))
        return err_set(e, ST_INVALID_ARGUMENT, "--data-cache: the path is too long");
    shard_folders_remove(host, order->job, order->attempt); /* of a number that a restored database gives again */
    TRY(make(host->data_cache, FOLDER, 0755, e));
    TRY(dir_make(own, 0755, e));
    TRY(dir_make(f.local, 0755, e));
    TRY(make(f.local, "read", 0755, e));
    TRY(dir_make(f.written, 0700, e));
    return give(host, order->job, f.written, e);
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

void shard_folders_begin(const struct host *host) {
    char all[PATH_MAX];
    if (*host->data_cache && print(all, host->data_cache, FOLDER))
        remove_below(all, directory_id(host->directory));
}
