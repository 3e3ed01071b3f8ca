#include "executor/agent/child.h"

#include "api/codec/frame.h"
#include "base/clock.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

/* Two rendezvous messages of the largest size: a worker that reads at all never has that much to come. */
enum { COMMANDS_MOST_BYTES = 8 << 20 };

struct child {
    struct child_options o;
    struct spawned process;
    struct relay *relay;
    struct reactor_watch death, room;
    struct reactor_timer term, kill;
    struct bytes commands;
    size_t commands_sent; /* of commands, already in the pipe */
    bool dead, waiting, killed;
    struct reaped how;
    char why[120];
};

pid_t child_pid(const struct child *c) { return c->process.pid; }
int64_t child_start_time(const struct child *c) { return c->process.start_time; }
int64_t child_step(const struct child *c) { return relay_step(c->relay); }
bool child_waiting(const struct child *c) { return c->waiting; }
const char *child_killed_because(const struct child *c) { return c->killed && *c->why ? c->why : NULL; }

void child_say(struct child *c, const char *text) { relay_say(c->relay, text); }
void child_sample(struct child *c, const Trainyard__V1__MetricRow *row) { relay_sample(c->relay, row); }
void child_discard(struct child *c) { relay_discard(c->relay); }

/* ---- commands ---- */

static void commands_write(struct child *c) {
    while (c->commands_sent < c->commands.len && c->process.commands >= 0) {
        ssize_t n = write(c->process.commands, c->commands.data + c->commands_sent, c->commands.len - c->commands_sent);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN) {
            reactor_watch_change(c->o.loop, &c->room, EPOLLOUT);
            return;
        }
        if (n < 0)
            break; /* the reader is gone; its death is told by its handle */
        c->commands_sent += (size_t)n;
    }
    bytes_clear(&c->commands);
    c->commands_sent = 0;
    reactor_watch_change(c->o.loop, &c->room, 0);
}

static void room_ready(void *ctx, uint32_t events) {
    (void)events;
    commands_write(ctx);
}

status_t child_send(struct child *c, const Trainyard__V1__WorkerCommand *command, struct err *e) {
    TRY(frame_pack(&command->base, &c->commands, e));
    commands_write(c);
    return ST_OK;
}

/* ---- the end ---- */

static void signal_send(struct child *c, int number) {
    if (!c->dead)
        kill(-c->process.pid, number); /* its group; not reaped yet, so the number is still its own */
}

static void term_fire(void *ctx) { signal_send(ctx, SIGTERM); }

static void kill_fire(void *ctx) {
    struct child *c = ctx;
    c->killed = !c->dead;
    signal_send(c, SIGKILL);
}

void child_end(struct child *c, int term_ms, int kill_ms, const char *why) {
    if (c->dead)
        return;
    if (why && !*c->why)
        snprintf(c->why, sizeof c->why, "%s", why);
    if (kill_ms == 0) {
        kill_fire(c);
        return;
    }
    if (term_ms == 0)
        term_fire(c);
    else if (!c->term.armed || c->term.at > deadline_in(term_ms))
        reactor_timer_set(c->o.loop, &c->term, term_ms);
    if (!c->kill.armed || c->kill.at > deadline_in(kill_ms))
        reactor_timer_set(c->o.loop, &c->kill, kill_ms);
}

static void death_ready(void *ctx, uint32_t events) {
    (void)events;
    struct child *c = ctx;
    if (reap_process(c->process.pid, &c->how, NULL) != ST_OK)
        return;
    c->dead = true;
    reactor_watch_remove(c->o.loop, &c->death);
    reactor_watch_remove(c->o.loop, &c->room);
    reactor_timer_cancel(c->o.loop, &c->term);
    reactor_timer_cancel(c->o.loop, &c->kill);
    bool drained = relay_drain(c->relay);
    c->o.owner.ended(c->o.owner.ctx, &c->how, drained);
}

static void relay_waiting(void *ctx, bool waits) {
    struct child *c = ctx;
    c->waiting = waits;
    if (!waits && c->dead && relay_drain(c->relay))
        c->o.owner.ended(c->o.owner.ctx, &c->how, true);
}

static void relay_broken(void *ctx, const char *sentence) { child_end(ctx, 0, 0, sentence); }

static void relay_spooled(void *ctx, bool urgent) {
    struct child *c = ctx;
    c->o.owner.spooled(c->o.owner.ctx, urgent);
}

static void relay_record(void *ctx, const Trainyard__V1__WorkerRecord *record) {
    struct child *c = ctx;
    c->o.owner.record(c->o.owner.ctx, record);
}

static status_t watches_open(struct child *c, struct err *e) {
    struct relay_options relay = {
        .loop = c->o.loop,
        .spool = c->o.spool,
        .log = c->o.log,
        .records = c->process.records,
        .out = c->process.out,
        .err = c->process.err,
        .owner = { .ctx = c,
                   .record = relay_record,
                   .spooled = relay_spooled,
                   .waiting = relay_waiting,
                   .broken = relay_broken },
    };
    TRY(relay_open(&relay, &c->relay, e));
    c->room = (struct reactor_watch){ .fd = c->process.commands, .ready = room_ready, .ctx = c };
    c->death = (struct reactor_watch){ .fd = c->process.pidfd, .ready = death_ready, .ctx = c };
    TRY(reactor_watch_add(c->o.loop, &c->room, 0, e));
    return reactor_watch_add(c->o.loop, &c->death, EPOLLIN, e);
}

status_t child_open(const struct child_options *options, struct child **ret, struct err *e) {
    struct child *c = calloc(1, sizeof *c);
    if (!c)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a worker");
    c->o = *options;
    c->term = (struct reactor_timer){ .fire = term_fire, .ctx = c };
    c->kill = (struct reactor_timer){ .fire = kill_fire, .ctx = c };
    bytes_init(&c->commands, COMMANDS_MOST_BYTES);
    status_t st = spawn_worker(&options->spawn, &c->process, e);
    if (st != ST_OK) {
        free(c);
        return st;
    }
    st = watches_open(c, e);
    if (st != ST_OK) {
        child_close(c);
        return st;
    }
    *ret = c;
    return ST_OK;
}

struct child *child_close(struct child *c) {
    if (!c)
        return NULL;
    if (!c->dead) {
        signal_send(c, SIGKILL);
        waitpid(c->process.pid, NULL, 0);
    }
    reactor_watch_remove(c->o.loop, &c->death);
    reactor_watch_remove(c->o.loop, &c->room);
    reactor_timer_cancel(c->o.loop, &c->term);
    reactor_timer_cancel(c->o.loop, &c->kill);
    relay_close(c->relay);
    spawned_close(&c->process);
    bytes_done(&c->commands);
    free(c);
    return NULL;
}
