/* The thread prepares the attempt (checkpoint_begin.h), and on rank 0 then alternates between waiting for changes of
 * the folder (checkpoint_scan.h) and storing what is complete (checkpoint_files.h), at low priority, because the
 * command computes meanwhile.
 *
 * It hands each event over in one place of memory, under the lock, and makes `events` readable. `wake` ends its waits
 * when the caller finishes or closes.
 *
 * A thread that a file system blocks cannot be stopped. checkpoints_close therefore joins the thread only if it ends
 * within CLOSE_MS, and else leaves it and its memory alone. */
#include "executor/program/checkpoints.h"

#include "api/codec/message.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "executor/program/checkpoint_begin.h"
#include "executor/program/checkpoint_scan.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/resource.h>

enum { CLOSE_MS = 200, LOW_PRIORITY = 10, OTHER_RANKS_MS = 2000 };

struct checkpoints {
    Trainyard__V1__WorkerStart *start; /* a copy: the thread may outlive the caller's */
    struct checkpoint_begin begin;
    int events, wake;
    pthread_t thread;
    atomic_bool closing, finishing;
    atomic_llong reading;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    struct checkpoints_event event;
    bool posted, over;
};

/* ---- the thread ---- */

static void notify(int fd) {
    const uint64_t one = 1;
    ssize_t wrote = write(fd, &one, sizeof one);
    (void)wrote; /* EAGAIN: it is readable already */
}

static void post(struct checkpoints *c, const struct checkpoints_event *event) {
    pthread_mutex_lock(&c->lock);
    while (c->posted && !atomic_load(&c->closing))
        pthread_cond_wait(&c->changed, &c->lock);
    c->event = *event;
    c->posted = true;
    pthread_mutex_unlock(&c->lock);
    notify(c->events);
}

static void post_notice(struct checkpoints *c, const char *kind, int64_t step, const char *name, const char *why) {
    struct checkpoints_event event = { .event = CHECKPOINTS_NOTICE, .kind = kind, .step = step };
    status_ignore(err_set(&event.text, ST_UNKNOWN, "'%.100s': %s", name, why));
    post(c, &event);
}

static bool continues(void *ctx) {
    struct checkpoints *c = ctx;
    return !atomic_load(&c->closing);
}

static bool prepare(struct checkpoints *c) {
    const struct file_progress progress = { continues, c };
    struct checkpoints_event event = { .event = CHECKPOINTS_READY };
    const status_t st = checkpoint_begin(c->start, &progress, &c->begin, &event.text);
    if (c->begin.taken)
        post_notice(c, "checkpoint_directory_taken", 0, c->begin.folder, "its directory belongs to this cluster now");
    if (st == ST_OK && !*c->begin.folder && *event.text.msg)
        post_notice(c, "no_checkpoints", 0, c->start->attempt->checkpoint_directory, event.text.msg);
    event.event = st == ST_OK ? CHECKPOINTS_READY : CHECKPOINTS_FAILED;
    event.cause = c->begin.cause;
    post(c, &event);
    return st == ST_OK;
}

static void take_in(struct checkpoints *c, struct checkpoint_scan *scan, const struct checkpoint_found *found) {
    const struct checkpoint_entry entry = { c->begin.fd, c->begin.folder, found->name, found->step };
    const struct file_progress progress = { continues, c };
    struct checkpoints_event event = { .event = CHECKPOINTS_STORED, .step = found->step };
    atomic_store(&c->reading, found->step);
    const status_t st = checkpoint_files_store(&entry, &progress, &event.stored, &event.text);
    atomic_store(&c->reading, -1);
    if (st == ST_CANCELLED || (st == ST_ABORTED && checkpoint_scan_try_later(scan, found)))
        return;
    checkpoint_scan_done(scan, found);
    if (st == ST_OK)
        post(c, &event);
    else
        post_notice(c, "checkpoint_refused", found->step, found->name, event.text.msg);
}

/* Everything that is complete now. A checkpoint that changed while it was read waits for the next call. */
static void take_in_all(struct checkpoints *c, struct checkpoint_scan *scan, bool ended) {
    struct checkpoint_found found, last = { .step = -1 };
    while (checkpoint_scan_misnamed(scan, &found))
        post_notice(c, "checkpoint_refused", found.step, found.name,
                    "it was made under its final name, so that nobody can see when it is complete: write it under "
                    "another name and rename it, or set program.checkpoints.format or marker");
    while (continues(c) && checkpoint_scan_next(scan, ended, &found)) {
        if (found.step == last.step && strcmp(found.name, last.name) == 0)
            return;
        last = found;
        take_in(c, scan, &found);
    }
}

static void watch(struct checkpoints *c) {
    const Trainyard__V1__AttemptStart *at = c->start->attempt;
    const struct checkpoint_format format = checkpoint_format_of(at->spec->program->checkpoints);
    CLEANUP(checkpoint_scan_closep)
    struct checkpoint_scan *scan = checkpoint_scan_open(c->begin.fd, c->begin.folder, &format, at->world_size);
    deadline_ms_t finish_by = DEADLINE_NEVER;
    while (continues(c)) {
        const bool ended = atomic_load(&c->finishing);
        checkpoint_scan_refresh(scan);
        take_in_all(c, scan, ended);
        if (ended && finish_by == DEADLINE_NEVER)
            finish_by = deadline_in(at->world_size > 1 ? OTHER_RANKS_MS : 0); /* they may still write their parts */
        if (clock_mono_ms() >= finish_by || (ended && !checkpoint_scan_incomplete(scan)))
            return;
        checkpoint_scan_wait(scan, ended ? -1 : c->wake);
    }
}

static void *run(void *ctx) {
    struct checkpoints *c = ctx;
    const struct checkpoints_event ended = { .event = CHECKPOINTS_ENDED };
    const bool ready = prepare(c);
    setpriority(PRIO_PROCESS, 0, LOW_PRIORITY); /* of this thread alone */
    if (ready && c->start->rank == 0 && c->begin.fd >= 0)
        watch(c);
    post(c, &ended);
    pthread_mutex_lock(&c->lock);
    c->over = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

/* ---- the caller ---- */

static void release(struct checkpoints *c) {
    closep(&c->events);
    closep(&c->wake);
    closep(&c->begin.fd);
    closep(&c->begin.job);
    if (c->start)
        trainyard__v1__worker_start__free_unpacked(c->start, NULL);
    pthread_mutex_destroy(&c->lock);
    pthread_cond_destroy(&c->changed);
    free(c);
}

status_t checkpoints_open(const Trainyard__V1__WorkerStart *start, struct checkpoints **ret, struct err *e) {
    Trainyard__V1__WorkerStart *copy = NULL;
    Trainyard__V1__AttemptStart attempt = *start->attempt;
    attempt.n_secrets = 0; /* the copy lives as long as the rank, and no checkpoint needs them */
    attempt.secrets = NULL;
    Trainyard__V1__WorkerStart without = *start;
    without.attempt = &attempt;
    TRY(message_copy(&without.base, &copy, e));
    struct checkpoints *c = alloc_zeroed(1, sizeof *c);
    c->start = copy;
    c->begin.fd = c->begin.job = -1;
    atomic_store(&c->reading, -1);
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    c->events = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    c->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (c->events >= 0 && c->wake >= 0 && (errno = pthread_create(&c->thread, NULL, run, c)) == 0) {
        *ret = c;
        return ST_OK;
    }
    const status_t st = err_errno(e, "start the thread for checkpoints");
    release(c);
    return st;
}

struct checkpoints *checkpoints_close(struct checkpoints *c) {
    if (!c)
        return NULL;
    const struct timespec by = deadline_timespec(deadline_in(CLOSE_MS));
    atomic_store(&c->closing, true);
    notify(c->wake);
    pthread_mutex_lock(&c->lock);
    pthread_cond_broadcast(&c->changed);
    int late = 0;
    while (!c->over && late == 0)
        late = pthread_cond_clockwait(&c->changed, &c->lock, CLOCK_MONOTONIC, &by);
    const bool over = c->over;
    pthread_mutex_unlock(&c->lock);
    if (!over) {
        pthread_detach(c->thread);
        return NULL;
    }
    pthread_join(c->thread, NULL);
    release(c);
    return NULL;
}

int checkpoints_fd(const struct checkpoints *c) { return c->events; }

bool checkpoints_take(struct checkpoints *c, struct checkpoints_event *ret) {
    uint64_t count;
    const ssize_t n = read(c->events, &count, sizeof count);
    (void)n; /* the next event makes it readable again */
    pthread_mutex_lock(&c->lock);
    const bool taken = c->posted;
    if (taken)
        *ret = c->event;
    c->posted = false;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    return taken;
}

const char *checkpoints_folder(const struct checkpoints *c) { return c->begin.folder; }
int checkpoints_job_folder(const struct checkpoints *c) { return c->begin.job; }
const char *checkpoints_resume(const struct checkpoints *c) { return c->begin.resume; }
int64_t checkpoints_resume_step(const struct checkpoints *c) { return c->begin.resume_step; }

void checkpoints_finish(struct checkpoints *c) {
    atomic_store(&c->finishing, true);
    notify(c->wake);
}

int64_t checkpoints_reading(struct checkpoints *c) { return atomic_load(&c->reading); }
