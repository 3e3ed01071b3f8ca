/* One worker process: a queue of commands, a relay for its output, and a pidfd for its death.
 *
 * Commands are appended to a buffer and written to a non-blocking pipe at once. If the pipe is full, a watch continues
 * the write when the worker has read. The buffer is bounded, so a worker that does not read cannot fill the memory.
 *
 * When the pidfd becomes readable, the process is reaped and the relay reads the rest of the pipes. If a full spool
 * refuses a part of it, `ended` is called with drained = false now, and with drained = true after the relay has stored
 * the rest. Signals go to the process group of the worker, and only before it is reaped: until then the system cannot
 * give the number to another process. */
#include "executor/agent/worker_process.h"

#include "api/codec/frame.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "executor/agent/orphans.h"
#include "executor/agent/reap.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    /* Two rendezvous messages of the largest size, and a list of 65,536 copies of data: a worker that reads its
     * commands never has more bytes waiting. */
    COMMANDS_MAX_BYTES = 24 << 20,
    LIMITS_CHECK_MS = 2000,
    SENTENCE_BYTES = 240,
};

struct worker_process {
    struct worker_process_options o;
    struct spawned process;
    struct relay *relay;
    struct reactor_watch death, writable;
    struct bytes commands;
    size_t commands_sent; /* of commands, already in the pipe */
    bool dead, killed;
    struct exit_status status;
    char why[120];
    struct reactor_timer limits;
    struct cgroup_facts facts; /* that were reported, and at the end the last ones */
    int64_t memory_killed_ms, died_ms;
};

pid_t worker_process_pid(const struct worker_process *p) { return p->process.pid; }
int64_t worker_process_start_time(const struct worker_process *p) { return p->process.start_time; }
int64_t worker_process_step(const struct worker_process *p) { return relay_step(p->relay); }
const char *worker_process_killed_because(const struct worker_process *p) {
    return p->killed && *p->why ? p->why : NULL;
}

void worker_process_log_line(struct worker_process *p, const char *text) { relay_log_line(p->relay, text); }
void worker_process_sample(struct worker_process *p, const Trainyard__V1__MetricRow *row) {
    relay_sample(p->relay, row);
}
void worker_process_discard(struct worker_process *p) { relay_discard(p->relay); }

/* ---- commands ---- */

static void commands_write(struct worker_process *p) {
    while (p->commands_sent < p->commands.len && p->process.commands >= 0) {
        ssize_t n = write(p->process.commands, p->commands.data + p->commands_sent, p->commands.len - p->commands_sent);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN) {
            reactor_watch_change(p->o.loop, &p->writable, EPOLLOUT);
            return;
        }
        if (n < 0)
            break; /* the worker has closed the pipe: its pidfd will report its death */
        p->commands_sent += (size_t)n;
    }
    if (p->commands.len > 0)
        explicit_bzero(p->commands.data, p->commands.len); /* a start order may have secrets */
    bytes_clear(&p->commands);
    p->commands_sent = 0;
    reactor_watch_change(p->o.loop, &p->writable, 0);
}

static void writable_ready(void *ctx, uint32_t events) {
    (void)events;
    commands_write(ctx);
}

status_t worker_process_send(struct worker_process *p, const Trainyard__V1__WorkerCommand *command, struct err *e) {
    TRY(frame_pack(&command->base, &p->commands, e));
    commands_write(p);
    return ST_OK;
}

/* ---- limits ---- */

enum cgroup_memory worker_process_memory(const struct worker_process *p, char *ret_sentence, size_t n,
                                         int64_t *ret_age_ms) {
    if (p->facts.memory != CGROUP_MEMORY_ENOUGH) {
        cgroup_memory_sentence(p->o.cgroup, &p->facts, ret_sentence, n);
        *ret_age_ms = p->died_ms - p->memory_killed_ms;
    }
    return p->facts.memory;
}

/* A program may continue without a process that was killed or could not be started: the event says what happened. */
static void limits_read(struct worker_process *p) {
    const struct cgroup_facts before = p->facts;
    char sentence[SENTENCE_BYTES];
    cgroup_facts_read(p->o.cgroup, &p->facts);
    if (p->facts.kills > before.kills)
        p->memory_killed_ms = clock_mono_ms();
    if (p->facts.kills > 0 && before.kills == 0) {
        cgroup_memory_sentence(p->o.cgroup, &p->facts, sentence, sizeof sentence);
        relay_notice(p->relay, "memory_limit", sentence);
    }
    if (p->facts.forks_refused > 0 && before.forks_refused == 0)
        relay_notice(p->relay, "process_limit",
                     "the rank has as many processes and threads as it may (--processes-max of the executor): no more "
                     "can be started");
}

static void limits_check(void *ctx);

static void limits_watch(struct worker_process *p) {
    p->limits = (struct reactor_timer){ .fire = limits_check, .ctx = p };
    if (p->o.cgroup)
        reactor_timer_set(p->o.loop, &p->limits, LIMITS_CHECK_MS);
}

static void limits_check(void *ctx) {
    struct worker_process *p = ctx;
    limits_read(p);
    reactor_timer_set(p->o.loop, &p->limits, LIMITS_CHECK_MS);
}

/* ---- the end ---- */

static void signal_send(struct worker_process *p, int number) {
    if (!p->dead)
        kill(-p->process.pid,
             number); /* the process group. The worker is not reaped yet, so it still has this number */
}

void worker_process_terminate(struct worker_process *p) { signal_send(p, SIGTERM); }

void worker_process_kill(struct worker_process *p, const char *why) {
    if (p->dead)
        return;
    if (!*p->why)
        snprintf(p->why, sizeof p->why, "%s", why);
    p->killed = true;
    signal_send(p, SIGKILL);
}

static void death_ready(void *ctx, uint32_t events) {
    (void)events;
    struct worker_process *p = ctx;
    if (reap_process(p->process.pid, &p->status, NULL) != ST_OK)
        return;
    p->dead = true;
    p->died_ms = clock_mono_ms();
    reactor_timer_cancel(p->o.loop, &p->limits);
    limits_read(p);
    cgroup_kill(p->o.cgroup);
    orphans_remove_worker(p->o.orphans, p->process.pid);
    orphans_kill(p->o.orphans);
    reactor_watch_remove(p->o.loop, &p->death);
    reactor_watch_remove(p->o.loop, &p->writable);
    bool drained = relay_drain(p->relay);
    p->o.owner.ended(p->o.owner.ctx, &p->status, drained);
}

static void relay_waiting(void *ctx, bool waits) {
    struct worker_process *p = ctx;
    if (p->o.owner.waiting)
        p->o.owner.waiting(p->o.owner.ctx, waits);
    if (!waits && p->dead && relay_drain(p->relay))
        p->o.owner.ended(p->o.owner.ctx, &p->status, true);
}

static void relay_broken(void *ctx, const char *sentence) {
    struct worker_process *p = ctx;
    if (p->dead) /* the exit status is the reason; an incomplete last record is only a consequence */
        return;
    if (p->o.owner.broken)
        p->o.owner.broken(p->o.owner.ctx, sentence);
    else
        worker_process_kill(p, sentence);
}

static void relay_spooled(void *ctx, bool urgent) {
    struct worker_process *p = ctx;
    p->o.owner.spooled(p->o.owner.ctx, urgent);
}

static void relay_record(void *ctx, const Trainyard__V1__WorkerRecord *record) {
    struct worker_process *p = ctx;
    p->o.owner.record(p->o.owner.ctx, record);
}

static status_t watches_open(struct worker_process *p, const struct relay_rest *rest, struct err *e) {
    struct relay_options relay = {
        .loop = p->o.loop,
        .spool = p->o.spool,
        .log = p->o.log,
        .records = p->process.records,
        .out = p->process.out,
        .err = p->process.err,
        .rest = rest,
        .owner = { .ctx = p,
                   .record = relay_record,
                   .spooled = relay_spooled,
                   .waiting = relay_waiting,
                   .broken = relay_broken },
    };
    TRY(relay_open(&relay, &p->relay, e));
    p->writable = (struct reactor_watch){ .fd = p->process.commands, .ready = writable_ready, .ctx = p };
    p->death = (struct reactor_watch){ .fd = p->process.pidfd, .ready = death_ready, .ctx = p };
    TRY(reactor_watch_add(p->o.loop, &p->writable, 0, e));
    return reactor_watch_add(p->o.loop, &p->death, EPOLLIN, e);
}

status_t worker_process_open(const struct worker_process_options *options, struct worker_process **ret, struct err *e) {
    struct worker_process *p = alloc_zeroed(1, sizeof *p);
    p->o = *options;
    bytes_init(&p->commands, COMMANDS_MAX_BYTES);
    status_t st = spawn_worker(&options->spawn, &p->process, e);
    if (st != ST_OK) {
        free(p);
        return st;
    }
    orphans_add_worker(p->o.orphans, p->process.pid);
    st = p->o.cgroup ? cgroup_add(p->o.cgroup, p->process.pid, e) : ST_OK;
    if (st == ST_OK)
        st = watches_open(p, NULL, e);
    if (st != ST_OK) {
        p->o.cgroup = NULL;
        worker_process_close(p);
        return st;
    }
    limits_watch(p);
    *ret = p;
    return ST_OK;
}

/* ---- handed over ---- */

bool worker_process_hand_over(const struct worker_process *p, Trainyard__Handover__HandedProcess *ret) {
    struct relay_rest rest;
    const struct cgroup_limits *limits = p->o.cgroup ? cgroup_limits_of(p->o.cgroup) : NULL;
    if (p->dead || p->killed || p->commands.len > 0 || !relay_rest(p->relay, &rest))
        return false;
    trainyard__handover__handed_process__init(ret);
    ret->pid = p->process.pid;
    ret->start_time = p->process.start_time;
    ret->pidfd = p->process.pidfd;
    ret->commands = p->process.commands;
    ret->records = p->process.records;
    ret->out = p->process.out;
    ret->err = p->process.err;
    ret->unread = rest.records;
    ret->out_line = rest.lines[0];
    ret->err_line = rest.lines[1];
    ret->step = rest.step;
    if (limits) {
        ret->group = (char *)(uintptr_t)cgroup_name(p->o.cgroup);
        ret->memory_bytes = limits->memory_bytes;
        ret->processes_max = limits->processes_max;
    }
    return true;
}

status_t worker_process_resume(const struct worker_process_options *options,
                               const Trainyard__Handover__HandedProcess *handed, struct worker_process **ret,
                               struct err *e) {
    struct worker_process *p = alloc_zeroed(1, sizeof *p);
    const struct relay_rest rest = { .records = handed->unread,
                                     .lines = { handed->out_line, handed->err_line },
                                     .step = handed->step };
    p->o = *options;
    bytes_init(&p->commands, COMMANDS_MAX_BYTES);
    p->process = (struct spawned){ .pid = handed->pid,
                                   .start_time = handed->start_time,
                                   .pidfd = handed->pidfd,
                                   .commands = handed->commands,
                                   .records = handed->records,
                                   .out = handed->out,
                                   .err = handed->err };
    orphans_add_worker(p->o.orphans, p->process.pid);
    cgroup_facts_read(p->o.cgroup, &p->facts); /* what it says has been reported */
    const status_t st = watches_open(p, &rest, e);
    if (st != ST_OK) {
        p->o.cgroup = NULL;
        worker_process_close(p);
        return st;
    }
    limits_watch(p);
    *ret = p;
    return ST_OK;
}

struct worker_process *worker_process_close(struct worker_process *p) {
    if (!p)
        return NULL;
    if (!p->dead) {
        signal_send(p, SIGKILL);
        waitpid(p->process.pid, NULL, 0);
        orphans_remove_worker(p->o.orphans, p->process.pid);
    }
    reactor_timer_cancel(p->o.loop, &p->limits);
    cgroup_close(p->o.cgroup);
    reactor_watch_remove(p->o.loop, &p->death);
    reactor_watch_remove(p->o.loop, &p->writable);
    relay_close(p->relay);
    spawned_close(&p->process);
    if (p->commands.data)
        explicit_bzero(p->commands.data, p->commands.cap);
    bytes_done(&p->commands);
    free(p);
    return NULL;
}
