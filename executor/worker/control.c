/* A thread polls the pipe from the agent and a signalfd for SIGTERM, and handles each command under the lock that
 * also guards the engine and the collective it is passed to. A stop is remembered, so that a receiver that is set
 * later gets it too. Before all ranks have joined there is no state worth a checkpoint, so a stop aborts the
 * collective, as SIGTERM always does. After SIGTERM the poll has a deadline at which the process exits, since a
 * kernel may not return soon. */
#include "executor/worker/control.h"

#include "base/alloc.h"
#include "engine/collective/collective.h"
#include "engine/run/engine.h"
#include "executor/worker/exit_code.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

/* Between SIGTERM and the process's own end: the agent kills after two seconds. */
enum { TERM_MS = 1500, DATA_REPORTS_MAX = 4096, TEXT_REPORTS_MAX = 64 };

/* Reports that nobody has taken, oldest first. */
struct reports {
    Trainyard__V1__WorkerCommand **items;
    size_t n;
};

struct control {
    int fd, signals, leave;
    struct frame_reader *reader;
    pthread_t thread;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t changed;
    struct engine *engine;
    struct collective *collective;
    Trainyard__V1__WorkerCommand *rendezvous;
    struct reports data, texts;
    bool data_ended;                     /* the last report has come, or more than can be kept */
    Trainyard__V1__WorkerCommand *shard; /* the newest report about a shard; NULL: none */
    bool gives_up_shards;
    bool trains; /* all ranks have joined: there may be steps to keep */
    bool stopped, terminated;
    int threads; /* the newest order; 0 = none */
    char reason[240];
};

static void exit_as(Trainyard__V1__WorkerEnd__Cause cause) { _exit(worker_exit_code(cause)); }

/* With the lock held. The compute thread may be anywhere: its next exchange fails. */
static void abort_rank(struct control *c) {
    c->terminated = true;
    if (c->engine)
        engine_stop_request(c->engine);
    if (c->collective)
        collective_abort(c->collective, "this rank was asked to stop");
}

/* Takes the command. */
static void report_keep(struct reports *r, Trainyard__V1__WorkerCommand *command) {
    r->items = alloc_grow(r->items, r->n, sizeof *r->items);
    r->items[r->n++] = command;
}

/* A rank that takes none keeps only a few. With the lock held; takes the command. */
static void data_keep(struct control *c, Trainyard__V1__WorkerCommand *command) {
    if (c->data_ended) {
        trainyard__v1__worker_command__free_unpacked(command, NULL);
        return;
    }
    report_keep(&c->data, command);
    c->data_ended = command->data->last || c->data.n == DATA_REPORTS_MAX;
}

/* The same; the last report of a text is kept in any case, since a rank waits for it and asks for one at a time. */
static void text_keep(struct control *c, Trainyard__V1__WorkerCommand *command) {
    if (c->texts.n < TEXT_REPORTS_MAX || command->text_encoded->last)
        report_keep(&c->texts, command);
    else
        trainyard__v1__worker_command__free_unpacked(command, NULL);
}

static void command_take(struct control *c, Trainyard__V1__WorkerCommand *command) {
    pthread_mutex_lock(&c->lock);
    switch (command->command_case) {
    case TRAINYARD__V1__WORKER_COMMAND__COMMAND_RENDEZVOUS:
        if (!c->rendezvous) { /* a second one is the first one again */
            c->rendezvous = command;
            command = NULL;
        }
        break;
    case TRAINYARD__V1__WORKER_COMMAND__COMMAND_DATA:
        data_keep(c, command);
        command = NULL;
        break;
    case TRAINYARD__V1__WORKER_COMMAND__COMMAND_TEXT_ENCODED:
        text_keep(c, command);
        command = NULL;
        break;
    case TRAINYARD__V1__WORKER_COMMAND__COMMAND_SHARD_UPLOADED:
        if (c->shard)
            trainyard__v1__worker_command__free_unpacked(c->shard, NULL);
        c->shard = command;
        command = NULL;
        break;
    case TRAINYARD__V1__WORKER_COMMAND__COMMAND_CHECKPOINT_COMMITTED:
        if (c->engine)
            engine_checkpoint_committed(c->engine, command->checkpoint_committed->step);
        break;
    case TRAINYARD__V1__WORKER_COMMAND__COMMAND_STOP:
        if (!c->stopped)
            snprintf(c->reason, sizeof c->reason, "%s", command->stop->reason);
        c->stopped = true;
        if (c->engine)
            engine_stop_request(c->engine);
        else if (!c->trains) /* no step is done: there is nothing to write, and loading may take minutes */
            abort_rank(c);
        break;
    case TRAINYARD__V1__WORKER_COMMAND__COMMAND_THREADS:
        c->threads = command->threads->threads;
        if (c->engine)
            engine_set_threads(c->engine, c->threads);
        break;
    default: break;
    }
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
    if (command)
        trainyard__v1__worker_command__free_unpacked(command, NULL);
}

static void commands_read(struct control *c) {
    bool ended = false;
    if (frame_reader_fill(c->reader, c->fd, &ended, NULL) != ST_OK || ended)
        exit_as(TRAINYARD__V1__WORKER_END__CAUSE__AGENT_LOST);
}

static void commands_take(struct control *c) {
    for (;;) {
        ProtobufCMessage *message;
        if (frame_reader_next(c->reader, &trainyard__v1__worker_command__descriptor, &message, NULL) != ST_OK)
            exit_as(TRAINYARD__V1__WORKER_END__CAUSE__AGENT_LOST);
        if (!message)
            return;
        command_take(c, (Trainyard__V1__WorkerCommand *)message);
    }
}

static void terminate(struct control *c) {
    struct signalfd_siginfo info;
    if (read(c->signals, &info, sizeof info) != sizeof info)
        return;
    pthread_mutex_lock(&c->lock);
    if (!c->stopped)
        snprintf(c->reason, sizeof c->reason, "by signal %u", info.ssi_signo);
    c->stopped = true;
    abort_rank(c);
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

static void *control_run(void *ctx) {
    struct control *c = ctx;
    deadline_ms_t exit_at = DEADLINE_NEVER;
    commands_take(c);
    for (;;) {
        if (exit_at == DEADLINE_NEVER && control_terminated(c))
            exit_at = deadline_in(TERM_MS);
        struct pollfd p[] = { { .fd = c->leave, .events = POLLIN },
                              { .fd = c->signals, .events = POLLIN },
                              { .fd = c->fd, .events = POLLIN } };
        int n = poll(p, 3, deadline_poll_ms(exit_at));
        if (n == 0)
            exit_as(TRAINYARD__V1__WORKER_END__CAUSE__STOPPED);
        if (n < 0)
            continue;
        if (p[0].revents)
            return NULL;
        if (p[1].revents)
            terminate(c);
        if (p[2].revents) {
            commands_read(c);
            commands_take(c);
        }
    }
}

status_t control_open(int fd, struct frame_reader *reader, struct control **ret, struct err *e) {
    CLEANUP(freep) struct control *c = alloc_zeroed(1, sizeof *c);
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    c->fd = fd;
    c->reader = reader;
    c->signals = signalfd(-1, &set, SFD_CLOEXEC);
    c->leave = eventfd(0, EFD_CLOEXEC);
    if (c->signals < 0 || c->leave < 0)
        return err_errno(e, "open the control thread's descriptors");
    pthread_mutex_init(&c->lock, NULL);
    pthread_cond_init(&c->changed, NULL);
    errno = pthread_create(&c->thread, NULL, control_run, c);
    if (errno)
        return err_errno(e, "start the control thread");
    *ret = take_ptr(&c);
    return ST_OK;
}

static void reports_done(struct reports *r) {
    for (size_t i = 0; i < r->n; i++)
        trainyard__v1__worker_command__free_unpacked(r->items[i], NULL);
    free(r->items);
}

struct control *control_close(struct control *c) {
    if (!c)
        return NULL;
    uint64_t one = 1;
    ssize_t wrote = write(c->leave, &one, sizeof one);
    (void)wrote;
    pthread_join(c->thread, NULL);
    closep(&c->signals);
    closep(&c->leave);
    if (c->rendezvous)
        trainyard__v1__worker_command__free_unpacked(c->rendezvous, NULL);
    if (c->shard)
        trainyard__v1__worker_command__free_unpacked(c->shard, NULL);
    reports_done(&c->data);
    reports_done(&c->texts);
    pthread_cond_destroy(&c->changed);
    pthread_mutex_destroy(&c->lock);
    free(c);
    return NULL;
}

void control_set_engine(struct control *c, struct engine *engine) {
    pthread_mutex_lock(&c->lock);
    c->engine = engine;
    if (engine && c->stopped)
        engine_stop_request(engine);
    if (engine && c->threads > 0)
        engine_set_threads(engine, c->threads);
    pthread_mutex_unlock(&c->lock);
}

void control_joined(struct control *c) {
    pthread_mutex_lock(&c->lock);
    c->trains = true;
    pthread_mutex_unlock(&c->lock);
}

void control_set_collective(struct control *c, struct collective *collective) {
    pthread_mutex_lock(&c->lock);
    c->collective = collective;
    if (collective && c->terminated)
        collective_abort(collective, "this rank was asked to stop");
    pthread_mutex_unlock(&c->lock);
}

status_t control_rendezvous(struct control *c, int tick_ms, const Trainyard__V1__Rendezvous **ret, struct err *e) {
    struct timespec until = deadline_timespec(deadline_in(tick_ms));
    status_t st = ST_OK;
    pthread_mutex_lock(&c->lock);
    while (!c->rendezvous && !c->stopped)
        if (pthread_cond_clockwait(&c->changed, &c->lock, CLOCK_MONOTONIC, &until) == ETIMEDOUT)
            break;
    if (c->stopped)
        st = err_set(e, ST_CANCELLED, "the rank was asked to stop before the rendezvous");
    else
        *ret = c->rendezvous ? c->rendezvous->rendezvous : NULL;
    pthread_mutex_unlock(&c->lock);
    return st;
}

static status_t report_take(struct control *c, struct reports *r, int tick_ms, const char *what,
                            Trainyard__V1__WorkerCommand **ret, struct err *e) {
    struct timespec until = deadline_timespec(deadline_in(tick_ms));
    status_t st = ST_OK;
    *ret = NULL;
    pthread_mutex_lock(&c->lock);
    while (r->n == 0 && !c->stopped)
        if (pthread_cond_clockwait(&c->changed, &c->lock, CLOCK_MONOTONIC, &until) == ETIMEDOUT)
            break;
    if (c->stopped) {
        st = err_set(e, ST_CANCELLED, "the rank was asked to stop before its %s there", what);
    } else if (r->n > 0) {
        *ret = r->items[0];
        memmove(r->items, r->items + 1, --r->n * sizeof *r->items);
    }
    pthread_mutex_unlock(&c->lock);
    return st;
}

status_t control_data(struct control *c, int tick_ms, Trainyard__V1__WorkerCommand **ret, struct err *e) {
    return report_take(c, &c->data, tick_ms, "data were", ret, e);
}

status_t control_text(struct control *c, int tick_ms, Trainyard__V1__WorkerCommand **ret, struct err *e) {
    return report_take(c, &c->texts, tick_ms, "text was", ret, e);
}

static bool shard_has_come(const struct control *c, int64_t step) {
    return c->shard && c->shard->shard_uploaded->step == step;
}

status_t control_shard(struct control *c, int64_t step, struct err *e) {
    status_t st = ST_OK;
    pthread_mutex_lock(&c->lock);
    while (!shard_has_come(c, step) && !c->terminated && !c->gives_up_shards)
        pthread_cond_wait(&c->changed, &c->lock);
    if (!shard_has_come(c, step))
        st = err_set(e, ST_CANCELLED, "the rank ended before its files were in the store");
    else if (*c->shard->shard_uploaded->message)
        st = err_set(e, ST_UNAVAILABLE, "%s", c->shard->shard_uploaded->message);
    pthread_mutex_unlock(&c->lock);
    return st;
}

void control_give_up_shards(struct control *c) {
    pthread_mutex_lock(&c->lock);
    c->gives_up_shards = true;
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->lock);
}

bool control_stopped(struct control *c, char *ret, size_t n) {
    pthread_mutex_lock(&c->lock);
    bool stopped = c->stopped;
    if (n)
        snprintf(ret, n, "%s", c->reason);
    pthread_mutex_unlock(&c->lock);
    return stopped;
}

bool control_terminated(struct control *c) {
    pthread_mutex_lock(&c->lock);
    bool terminated = c->terminated;
    pthread_mutex_unlock(&c->lock);
    return terminated;
}
