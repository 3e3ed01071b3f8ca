#include "executor/agent/directory.h"

#include "base/file.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
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
    ATTEMPT_MOST_BYTES = 1 << 20, /* an attempt's status: some 300 bytes a rank on this host */
};

struct directory {
    char path[PATH_MAX];
    char id[ID_TEXT];
    int lock;
    int64_t incarnation, epoch;
};

const char *directory_path(const struct directory *d) { return d->path; }
const char *directory_id(const struct directory *d) { return d->id; }
int64_t directory_incarnation(const struct directory *d) { return d->incarnation; }
int64_t directory_epoch(const struct directory *d) { return d->epoch; }

static status_t file_path(const struct directory *d, const char *name, char ret[PATH_MAX], struct err *e) {
    if (snprintf(ret, PATH_MAX, "%s/%s", d->path, name) >= PATH_MAX)
        return err_set(e, ST_INVALID_ARGUMENT, "the path of '%s' is too long", name);
    return ST_OK;
}

/* A small text file; "" when it is not there. */
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

static status_t number_read(const struct directory *d, const char *name, int64_t *ret, struct err *e) {
    char text[NUMBER_TEXT], *end;
    TRY(text_read(d, name, text, sizeof text, e));
    errno = 0;
    long long value = *text ? strtoll(text, &end, 10) : 0;
    if (*text && (errno || *end || value < 0))
        return err_set(e, ST_DATA_LOSS, "'%s/%s' holds '%s', which is no number", d->path, name, text);
    *ret = value;
    return ST_OK;
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
    CLEANUP(directory_closep) struct directory *d = calloc(1, sizeof *d);
    if (!d)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the agent's directory");
    d->lock = -1;
    if (!realpath(path, d->path))
        return err_errno(e, "resolve '%s'", path);
    TRY(lock_take(d, e));
    TRY(id_take(d, e));
    TRY(number_read(d, "epoch", &d->epoch, e));
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

status_t directory_epoch_raise(struct directory *d, int64_t epoch, struct err *e) {
    if (epoch <= d->epoch)
        return ST_OK;
    TRY(number_write(d, "epoch", epoch, e));
    d->epoch = epoch;
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
    CLEANUP(freep) uint8_t *packed = malloc(n + 1);
    if (!packed)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for an attempt's record");
    trainyard__v1__attempt_status__pack(status, packed);
    CLEANUP(closep) int fd = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0)
        return err_errno(e, "open '%s'", fresh);
    TRY(fd_write_all(fd, packed, n, e));
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
    bytes_init(&b, ATTEMPT_MOST_BYTES);
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
        Trainyard__V1__AttemptStatus **grown = realloc(list, (n + 1) * sizeof *list);
        if (grown)
            list = grown;
        if (status && grown)
            list[n++] = status;
        else if (!status)
            unlink(path);
    }
    closedir(dir);
    *ret = list;
    *ret_n = n;
    return ST_OK;
}
