/* The agent's directory: small text files, and one protobuf message for each attempt.
 *
 * directory_open creates missing files and folders, takes the lock, and reads identity, cluster and epoch; a file with
 * damaged content is an error and not a new start. With a new start the executor could obey a controller that it had
 * refused, or use the id of another executor. Every file is written under a temporary name and renamed, so a reader
 * finds the old or the new content. Only identity, cluster and epoch are fsynced. */
#include "executor/agent/directory.h"

#include "base/alloc.h"
#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <unistd.h>

enum {
    ID_BYTES = 8,
    ID_TEXT = 2 * ID_BYTES + 1,
    NUMBER_TEXT = 24,
    UUID_TEXT = 37,
    ATTEMPT_MAX_BYTES = 1 << 20, /* an attempt's status: some 300 bytes a rank on this host */
};

struct directory {
    char path[PATH_MAX];
    char id[ID_TEXT];
    int lock;
    int64_t incarnation, epoch;
    char cluster[UUID_TEXT], nonce[UUID_TEXT];
};

const char *directory_path(const struct directory *d) { return d->path; }
const char *directory_id(const struct directory *d) { return d->id; }
int64_t directory_incarnation(const struct directory *d) { return d->incarnation; }
int64_t directory_epoch(const struct directory *d) { return d->epoch; }
const char *directory_nonce(const struct directory *d) { return d->nonce; }
const char *directory_cluster(const struct directory *d) { return d->cluster; }

static status_t file_path(const struct directory *d, const char *name, char ret[PATH_MAX], struct err *e) {
    if (snprintf(ret, PATH_MAX, "%s/%s", d->path, name) >= PATH_MAX)
        return err_set(e, ST_INVALID_ARGUMENT, "the path of '%s' is too long", name);
    return ST_OK;
}

/* Reads a small text file; "" if it does not exist. */
static status_t text_read(const struct directory *d, const char *name, char *ret, size_t n, struct err *e) {
    char path[PATH_MAX];
    TRY(file_path(d, name, path, e));
    struct bytes b;
    bytes_init(&b, n - 1);
    struct err why;
    status_t st = file_read(path, &b, &why);
    if (st == ST_OK || st == ST_NOT_FOUND)
        snprintf(ret, n, "%s", b.data && b.len ? b.data : "");
    bytes_done(&b);
    if (st != ST_OK && st != ST_NOT_FOUND)
        return err_set(e, st, "%s", why.msg);
    ret[strcspn(ret, "\n")] = '\0';
    return ST_OK;
}

static status_t text_write(const struct directory *d, const char *name, const char *text, struct err *e) {
    char path[PATH_MAX];
    TRY(file_path(d, name, path, e));
    return file_write_atomic(path, text, strlen(text), 0600, e);
}

static status_t number_parse(const struct directory *d, const char *name, const char *text, int64_t *ret,
                             struct err *e) {
    char *end;
    errno = 0;
    long long value = *text ? strtoll(text, &end, 10) : 0;
    if (*text && (errno || *end || value < 0))
        return err_set(e, ST_DATA_LOSS, "'%s/%s' holds '%s', which is not a number", d->path, name, text);
    *ret = value;
    return ST_OK;
}

static status_t number_read(const struct directory *d, const char *name, int64_t *ret, struct err *e) {
    char text[NUMBER_TEXT];
    TRY(text_read(d, name, text, sizeof text, e));
    return number_parse(d, name, text, ret, e);
}

static bool uuid_valid(const char *text) {
    return strlen(text) == UUID_TEXT - 1 && strspn(text, "0123456789abcdef-") == UUID_TEXT - 1;
}

static status_t uuid_keep(const struct directory *d, const char *name, const char *text, char ret[UUID_TEXT],
                          struct err *e) {
    if (*text && !uuid_valid(text))
        return err_set(e, ST_DATA_LOSS, "'%s/%s' holds '%s', which is no UUID", d->path, name, text);
    snprintf(ret, UUID_TEXT, "%s", text);
    return ST_OK;
}

/* "EPOCH", or "EPOCH NONCE". */
static status_t epoch_read(struct directory *d, struct err *e) {
    char text[NUMBER_TEXT + UUID_TEXT + 1];
    TRY(text_read(d, "epoch", text, sizeof text, e));
    char *space = strchr(text, ' ');
    if (space)
        *space = '\0';
    TRY(number_parse(d, "epoch", text, &d->epoch, e));
    return uuid_keep(d, "epoch", space ? space + 1 : "", d->nonce, e);
}

static status_t cluster_read(struct directory *d, struct err *e) {
    char text[UUID_TEXT + 1];
    TRY(text_read(d, "cluster", text, sizeof text, e));
    return uuid_keep(d, "cluster", text, d->cluster, e);
}

static status_t number_write(const struct directory *d, const char *name, int64_t value, struct err *e) {
    char text[NUMBER_TEXT];
    snprintf(text, sizeof text, "%lld\n", (long long)value);
    return text_write(d, name, text, e);
}

static status_t lock_take(struct directory *d, struct err *e) {
    char path[PATH_MAX];
    TRY(file_path(d, "lock", path, e));
    d->lock = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (d->lock < 0)
        return err_errno(e, "open '%s'", path);
    if (flock(d->lock, LOCK_EX | LOCK_NB) == 0)
        return ST_OK;
    if (errno == EWOULDBLOCK)
        return err_set(e, ST_FAILED_PRECONDITION, "another trainyard-executor runs on directory '%s'", d->path);
    return err_errno(e, "lock '%s'", path);
}

static status_t id_take(struct directory *d, struct err *e) {
    char text[64];
    TRY(text_read(d, "id", text, sizeof text, e));
    if (*text) {
        if (strlen(text) != ID_TEXT - 1 || strspn(text, "0123456789abcdef") != ID_TEXT - 1)
            return err_set(e, ST_DATA_LOSS, "'%s/id' does not hold an executor's id of %d hex digits", d->path,
                           ID_TEXT - 1);
        memcpy(d->id, text, ID_TEXT);
        return ST_OK;
    }
    uint8_t random[ID_BYTES];
    if (getrandom(random, sizeof random, 0) != sizeof random)
        return err_errno(e, "draw an executor's id");
    for (int i = 0; i < ID_BYTES; i++)
        snprintf(d->id + 2 * (size_t)i, 3, "%02x", random[i]);
    return text_write(d, "id", d->id, e);
}

status_t directory_open(const char *path, struct directory **ret, struct err *e) {
    TRY(dir_make(path, 0700, e));
    CLEANUP(directory_closep) struct directory *d = alloc_zeroed(1, sizeof *d);
    d->lock = -1;
    if (!realpath(path, d->path))
        return err_errno(e, "resolve '%s'", path);
    TRY(lock_take(d, e));
    TRY(id_take(d, e));
    TRY(cluster_read(d, e));
    TRY(epoch_read(d, e));
    TRY(number_read(d, "incarnation", &d->incarnation, e));
    d->incarnation++;
    TRY(number_write(d, "incarnation", d->incarnation, e));
    char attempts[PATH_MAX];
    TRY(file_path(d, "attempts", attempts, e));
    TRY(dir_make(attempts, 0700, e));
    *ret = take_ptr(&d);
    return ST_OK;
}

struct directory *directory_close(struct directory *d) {
    if (d)
        closep(&d->lock);
    free(d);
    return NULL;
}

status_t directory_epoch_raise(struct directory *d, int64_t epoch, const char *nonce, struct err *e) {
    if (epoch < d->epoch)
        return err_set(e, ST_FAILED_PRECONDITION, "a command of epoch %lld came after one of epoch %lld was obeyed",
                       (long long)epoch, (long long)d->epoch);
    if (epoch == d->epoch && *nonce && *d->nonce && strcmp(nonce, d->nonce) != 0)
        return err_set(e, ST_FAILED_PRECONDITION,
                       "a command of epoch %lld came from another election than the one that was obeyed under this "
                       "number: the controller's database was set back",
                       (long long)epoch);
    if (epoch == d->epoch && (!*nonce || *d->nonce))
        return ST_OK;
    if (*nonce && !uuid_valid(nonce))
        return err_set(e, ST_INVALID_ARGUMENT, "the nonce of epoch %lld is no UUID", (long long)epoch);
    char text[NUMBER_TEXT + UUID_TEXT + 1];
    snprintf(text, sizeof text, "%lld%s%s\n", (long long)epoch, *nonce ? " " : "", nonce);
    TRY(text_write(d, "epoch", text, e));
    d->epoch = epoch;
    snprintf(d->nonce, sizeof d->nonce, "%s", nonce);
    return ST_OK;
}

status_t directory_cluster_join(struct directory *d, const char *cluster, struct err *e) {
    if (!*cluster || strcmp(cluster, d->cluster) == 0)
        return ST_OK;
    if (*d->cluster)
        return err_set(
            e, ST_FAILED_PRECONDITION,
            "this executor belongs to cluster %s, and the controller serves cluster %.40s: check "
            "--controller; to move the host permanently, stop the executor and start it with a new --directory",
            d->cluster, cluster);
    if (!uuid_valid(cluster))
        return err_set(e, ST_INVALID_ARGUMENT, "the controller's cluster is no UUID");
    TRY(text_write(d, "cluster", cluster, e));
    snprintf(d->cluster, sizeof d->cluster, "%s", cluster);
    return ST_OK;
}

static status_t attempt_path(const struct directory *d, int64_t job, int32_t attempt, char ret[PATH_MAX],
                             struct err *e) {
    char name[64];
    snprintf(name, sizeof name, "attempts/%lld-%d", (long long)job, attempt);
    return file_path(d, name, ret, e);
}

status_t directory_attempt_write(struct directory *d, const Trainyard__V1__AttemptStatus *status, struct err *e) {
    char path[PATH_MAX], fresh[PATH_MAX];
    TRY(attempt_path(d, status->job, status->attempt, path, e));
    TRY(file_path(d, "attempt.new", fresh, e));
    size_t n = trainyard__v1__attempt_status__get_packed_size(status);
    CLEANUP(freep) uint8_t *packed = alloc_zeroed(n, 1);
    trainyard__v1__attempt_status__pack(status, packed);
    CLEANUP(closep) int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_errno(e, "open '%s'", fresh);
    status_t st = fd_write_all(fd, packed, n, e);
    if (st != ST_OK)
        return err_prefix(e, st, "'%s': ", fresh);
    if (rename(fresh, path) < 0)
        return err_errno(e, "rename '%s' to '%s'", fresh, path);
    return ST_OK;
}

void directory_attempt_remove(struct directory *d, int64_t job, int32_t attempt) {
    char path[PATH_MAX];
    if (attempt_path(d, job, attempt, path, NULL) == ST_OK)
        unlink(path);
}

static Trainyard__V1__AttemptStatus *attempt_read(const char *path) {
    struct bytes b;
    bytes_init(&b, ATTEMPT_MAX_BYTES);
    Trainyard__V1__AttemptStatus *status = NULL;
    if (file_read(path, &b, NULL) == ST_OK && b.len)
        status = trainyard__v1__attempt_status__unpack(NULL, b.len, (const uint8_t *)b.data);
    bytes_done(&b);
    return status;
}

status_t directory_attempts_read(struct directory *d, Trainyard__V1__AttemptStatus ***ret, size_t *ret_n,
                                 struct err *e) {
    char folder[PATH_MAX], path[2 * PATH_MAX];
    TRY(file_path(d, "attempts", folder, e));
    DIR *dir = opendir(folder);
    if (!dir)
        return err_errno(e, "list '%s'", folder);
    Trainyard__V1__AttemptStatus **list = NULL;
    size_t n = 0;
    for (struct dirent *entry; (entry = readdir(dir));) {
        if (entry->d_name[0] == '.')
            continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        Trainyard__V1__AttemptStatus *status = attempt_read(path);
        list = alloc_grow(list, n, sizeof *list);
        if (status)
            list[n++] = status;
        else
            unlink(path);
    }
    closedir(dir);
    *ret = list;
    *ret_n = n;
    return ST_OK;
}
