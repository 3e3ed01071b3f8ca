/* The thread, which the first upload starts, does everything that touches the job's file system (artifact_place.h): it
 * may block there for as long as the file system does, while the rank goes on. An upload has one operation at a time
 * in the queue of the thread: a piece, or its end. The caller waits for the operation before it gives the next one, so
 * that one piece of each upload is in memory. Operations that are done come back in a list, and `events` becomes
 * readable.
 *
 * A thread that a file system blocks cannot be stopped: artifacts_free joins it only if it ends within CLOSE_MS, and
 * else leaves it and its memory alone. */
#include "executor/program/tracking/artifacts.h"

#include "base/alloc.h"
#include "base/beneath.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/sha256.h"
#include "base/utf8.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CLOSE_MS = 200, PATH_BYTES = ARTIFACT_PATH_BYTES + 32, NAME_BYTES = PATH_BYTES + ARTIFACT_FOLDER_BYTES };

enum operation { WRITE, KEEP, DROP };

struct artifact {
    struct artifacts *a;
    char path[PATH_BYTES];
    int64_t bytes;
    bool refused, dropped, busy; /* busy: the thread has it */
    struct artifact *next_open;  /* in the list of all uploads */
    /* of the operation: the thread's while busy */
    struct artifact *next;
    enum operation operation;
    char *piece;
    size_t n_piece;
    struct err why;
    status_t status;
    int fd; /* -1: not made yet */
    char temporary[ARTIFACT_TEMPORARY_BYTES];
    struct sha256 sha256;
};

struct list {
    struct artifact *first, *last;
};

struct artifacts {
    struct points *points;
    struct artifacts_sink sink;
    struct artifact *all;
    int open, events;
    struct artifact_place place; /* the thread's, but for its job, attempt and rank */
    int job;                     /* -1: none. A copy: the thread may outlive the caller's */
    pthread_t thread;
    bool started;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    struct list queue, done;
    bool closing, over;
};

struct artifacts *artifacts_new(struct points *points, const struct artifacts_sink *sink) {
    struct artifacts *a = alloc_zeroed(1, sizeof *a);
    *a = (struct artifacts){ .points = points, .sink = *sink, .job = -1 };
    a->events = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    artifact_place_init(&a->place, -1, 1, 0);
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->changed, NULL);
    return a;
}

void artifacts_folder(struct artifacts *a, int job, int attempt, int rank) {
    closep(&a->job);
    a->job = job < 0 ? -1 : fcntl(job, F_DUPFD_CLOEXEC, 0);
    artifact_place_init(&a->place, a->job, attempt, rank);
}

/* ---- names ---- */

/* Parts between '/', none of them empty or hidden: ".", ".." and the files of artifact_place.c begin with '.', too. */
static status_t name_check(const char *path, struct err *e) {
    const size_t n = strlen(path);
    if (n == 0 || n > ARTIFACT_PATH_BYTES || !utf8_valid(path, n))
        return err_set(e, ST_INVALID_ARGUMENT, "its name has not 1 to %d bytes of UTF-8", ARTIFACT_PATH_BYTES);
    for (size_t i = 0; i < n; i++) {
        const bool begins = i == 0 || path[i - 1] == '/';
        if ((unsigned char)path[i] < ' ' || path[i] == 0x7f || path[i] == '\\')
            return err_set(e, ST_INVALID_ARGUMENT, "its name has a control character or a backslash");
        if (begins && (path[i] == '.' || path[i] == '/'))
            return err_set(e, ST_INVALID_ARGUMENT, "a part of its name is empty or begins with '.'");
    }
    return path[n - 1] == '/' ? err_set(e, ST_INVALID_ARGUMENT, "its name ends in '/'") : ST_OK;
}

static status_t path_in_job(const struct artifacts *a, const char *path, char ret[PATH_BYTES], struct err *e) {
    TRY(name_check(path, e));
    if (a->place.rank > 0)
        snprintf(ret, PATH_BYTES, "rank-%d/%s", a->place.rank, path);
    else
        snprintf(ret, PATH_BYTES, "%s", path);
    return ST_OK;
}

/* ---- the thread ---- */

static void list_add(struct list *list, struct artifact *f) {
    f->next = NULL;
    if (list->first)
        list->last->next = f;
    else
        list->first = f;
    list->last = f;
}

static struct artifact *list_take(struct list *list) {
    struct artifact *f = list->first;
    if (f)
        list->first = f->next;
    return f;
}

static status_t operate(struct artifact_place *p, struct artifact *f, struct err *e) {
    if (f->operation == DROP) {
        if (f->fd >= 0)
            artifact_place_drop(p, f->temporary);
        closep(&f->fd);
        return ST_OK;
    }
    if (f->fd < 0)
        TRY(artifact_place_begin(p, f->temporary, &f->fd, e));
    if (f->operation == KEEP) {
        TRY(artifact_place_keep(p, f->temporary, f->fd, f->path, f->bytes, e));
        closep(&f->fd);
        return ST_OK;
    }
    sha256_update(&f->sha256, f->piece, f->n_piece);
    return fd_write_all(f->fd, f->piece, f->n_piece, e);
}

static void *run(void *ctx) {
    struct artifacts *a = ctx;
    const uint64_t one = 1;
    pthread_mutex_lock(&a->lock);
    while (a->queue.first || !a->closing) {
        struct artifact *f = list_take(&a->queue);
        if (!f) {
            pthread_cond_wait(&a->changed, &a->lock);
            continue;
        }
        pthread_mutex_unlock(&a->lock);
        f->status = operate(&a->place, f, &f->why);
        pthread_mutex_lock(&a->lock);
        list_add(&a->done, f);
        const ssize_t n = write(a->events, &one, sizeof one);
        (void)n; /* EAGAIN: it is readable already */
    }
    a->over = true;
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
    return NULL;
}

static status_t thread_start(struct artifacts *a, struct err *e) {
    if (a->started)
        return ST_OK;
    if (a->events < 0 || (errno = pthread_create(&a->thread, NULL, run, a)) != 0)
        return err_errno(e, "start the thread for files");
    a->started = true;
    return ST_OK;
}

/* ---- an upload ---- */

static void operation_begin(struct artifact *f, enum operation operation) {
    struct artifacts *a = f->a;
    f->busy = true;
    f->operation = operation;
    pthread_mutex_lock(&a->lock);
    list_add(&a->queue, f);
    pthread_cond_broadcast(&a->changed);
    pthread_mutex_unlock(&a->lock);
}

static void refuse(struct artifact *f, const char *why) {
    if (!f->refused && !f->dropped) {
        char printable[PATH_BYTES];
        utf8_copy_printable(f->path, printable, sizeof printable);
        points_event(f->a->points, "artifact_refused", "the file '%.200s' is not kept: %s", printable, why);
    }
    f->refused = true;
}

static status_t begin(struct artifact *f, const char *path, struct err *e) {
    struct artifacts *a = f->a;
    if (a->open > ARTIFACTS_OPEN)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "more than %d files are uploaded at a time", ARTIFACTS_OPEN);
    TRY(path_in_job(a, path, f->path, e));
    if (a->job < 0)
        return err_set(e, ST_FAILED_PRECONDITION, "this job has no folder for checkpoints, in which it would be kept");
    return thread_start(a, e);
}

struct artifact *artifacts_begin(struct artifacts *a, const char *path) {
    struct artifact *f = alloc_zeroed(1, sizeof *f);
    struct err e;
    f->a = a;
    f->fd = -1;
    snprintf(f->path, sizeof f->path, "%s", path);
    sha256_begin(&f->sha256);
    f->next_open = a->all;
    a->all = f;
    a->open++;
    if (begin(f, path, &e) != ST_OK)
        refuse(f, e.msg);
    return f;
}

static void upload_free(struct artifact *f) {
    struct artifact **at = &f->a->all;
    while (*at != f)
        at = &(*at)->next_open;
    *at = f->next_open;
    f->a->open--;
    closep(&f->fd);
    free(f->piece);
    free(f);
}

bool artifact_write(struct artifact *f, const char *piece, size_t n) {
    f->bytes += (int64_t)n;
    if (f->bytes > ARTIFACT_BYTES)
        refuse(f, "it is larger than 256 MiB");
    if (f->refused || n == 0)
        return false;
    f->piece = alloc_zeroed(n, 1);
    memcpy(f->piece, piece, n);
    f->n_piece = n;
    operation_begin(f, WRITE);
    return true;
}

bool artifact_end(struct artifact *f) {
    if (f->refused && f->fd < 0) {
        upload_free(f);
        return false;
    }
    operation_begin(f, f->refused ? DROP : KEEP);
    return true;
}

void artifact_drop(struct artifact *f) {
    f->dropped = true;
    if (f->busy)
        return;
    if (f->fd < 0)
        upload_free(f);
    else
        operation_begin(f, DROP);
}

static void stored(const struct artifact *f) {
    struct sha256 sha256 = f->sha256;
    uint8_t digest[SHA256_BYTES];
    char hex[SHA256_HEX];
    sha256_final(&sha256, digest);
    sha256_hex(digest, hex);
    f->a->sink.stored(f->a->sink.ctx, f->path, f->bytes, hex);
}

/* The upload's operation is done: the next one, or its end. */
static void operation_end(struct artifact *f) {
    const struct artifacts_sink *sink = &f->a->sink;
    const enum operation operation = f->operation;
    f->busy = false;
    free(f->piece);
    f->piece = NULL;
    if (f->status != ST_OK)
        refuse(f, f->why.msg);
    if (operation == KEEP && f->status == ST_OK && !f->refused)
        stored(f);
    else if (operation != DROP && (f->dropped || operation == KEEP) && f->fd >= 0) {
        operation_begin(f, DROP);
        return;
    }
    const bool ended = operation != WRITE || f->dropped;
    if (!f->dropped)
        sink->advanced(sink->server, f, ended);
    if (ended)
        upload_free(f);
}

int artifacts_fd(const struct artifacts *a) { return a->events; }
bool artifacts_busy(const struct artifacts *a) { return a->open > 0; }

void artifacts_run(struct artifacts *a) {
    uint64_t count;
    const ssize_t n = a->started ? read(a->events, &count, sizeof count) : -1;
    if (n < 0)
        return;
    for (;;) {
        pthread_mutex_lock(&a->lock);
        struct artifact *f = list_take(&a->done);
        pthread_mutex_unlock(&a->lock);
        if (!f)
            return;
        operation_end(f);
    }
}

void artifacts_end(struct artifacts *a) {
    for (struct artifact *f = a->all; f; f = f->next_open)
        if (f->busy && f->operation == KEEP)
            refuse(f, "the program has ended, and the file system of the job's folder has not answered in time");
}

/* ---- reading ---- */

/* A file or folder of this attempt. */
static status_t stored_open(const struct artifacts *a, const char *path, int flags, int *ret, struct err *e) {
    char folder[ARTIFACT_FOLDER_BYTES], name[NAME_BYTES];
    if (a->job < 0)
        return err_set(e, ST_NOT_FOUND, "this job has no folder for files");
    artifact_folder(a->place.attempt, folder);
    snprintf(name, sizeof name, "%s/%s", folder, path);
    return beneath_open(a->job, name, flags, name, ret, e);
}

int artifacts_read(struct artifacts *a, const char *path, int64_t *ret_bytes) {
    char name[PATH_BYTES];
    struct stat st;
    CLEANUP(closep) int fd = -1;
    if (path_in_job(a, path, name, NULL) != ST_OK || stored_open(a, name, O_RDONLY | O_NONBLOCK, &fd, NULL) != ST_OK ||
        fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
        return -1;
    *ret_bytes = st.st_size;
    return take_fd(&fd);
}

json_t *artifacts_list(struct artifacts *a, const char *path) {
    char name[PATH_BYTES] = ".";
    json_t *list = json_array();
    int fd = -1;
    struct stat st;
    if (a->place.rank > 0 && !*path)
        snprintf(name, sizeof name, "rank-%d", a->place.rank);
    if ((*path && path_in_job(a, path, name, NULL) != ST_OK) ||
        stored_open(a, name, O_RDONLY | O_DIRECTORY, &fd, NULL) != ST_OK)
        return list;
    DIR *d = fdopendir(fd);
    for (const struct dirent *entry; d && json_array_size(list) < ARTIFACTS_LISTED && (entry = readdir(d));)
        if (*entry->d_name != '.' && fstatat(fd, entry->d_name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
            json_t *row = json_pack("{ss sb}", "path", entry->d_name, "is_dir", S_ISDIR(st.st_mode) ? 1 : 0);
            if (S_ISREG(st.st_mode))
                json_object_set_new(row, "file_size", json_integer(st.st_size));
            json_array_append_new(list, row);
        }
    if (d)
        closedir(d);
    else
        close(fd);
    return list;
}

/* ---- the end ---- */

/* Until the thread has dropped what was not finished. */
static void drops_wait(struct artifacts *a, deadline_ms_t by) {
    for (struct artifact *f = a->all, *next; f; f = next) {
        next = f->next_open;
        artifact_drop(f);
    }
    while (a->open > 0 && clock_mono_ms() < by) {
        struct pollfd p = { .fd = a->events, .events = POLLIN };
        poll(&p, 1, deadline_poll_ms(by));
        artifacts_run(a);
    }
}

/* False: the thread is blocked. */
static bool thread_end(struct artifacts *a, deadline_ms_t by) {
    const struct timespec until = deadline_timespec(by);
    int late = 0;
    if (!a->started)
        return true;
    pthread_mutex_lock(&a->lock);
    a->closing = true;
    pthread_cond_broadcast(&a->changed);
    while (!a->over && late == 0)
        late = pthread_cond_clockwait(&a->changed, &a->lock, CLOCK_MONOTONIC, &until);
    const bool over = a->over;
    pthread_mutex_unlock(&a->lock);
    if (over)
        pthread_join(a->thread, NULL);
    else
        pthread_detach(a->thread);
    return over;
}

struct artifacts *artifacts_free(struct artifacts *a) {
    if (!a)
        return NULL;
    const deadline_ms_t by = deadline_in(CLOSE_MS);
    drops_wait(a, by);
    if (!thread_end(a, by))
        return NULL;
    while (a->all)
        upload_free(a->all);
    artifact_place_done(&a->place);
    closep(&a->job);
    closep(&a->events);
    pthread_mutex_destroy(&a->lock);
    pthread_cond_destroy(&a->changed);
    free(a);
    return NULL;
}
