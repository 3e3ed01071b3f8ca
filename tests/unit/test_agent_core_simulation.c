/* The agent's core against a random host: workers join, finish, crash, hang, flood the spool or ignore TERM, GPUs fail,
 * starts fail, and a controller starts, stops, fences, forgets and repeats itself over a stream that breaks. After
 * every step the rules of core/agent_core.h must hold. Once the faults stop, the agent is asked to leave, and every
 * process must end. A failure prints its seed: TRAINYARD_SEED=n replays it. */
#include "base/limits.h"
#include "executor/agent/core/agent_core.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { SLOTS = 4, DEVICES = 2, CORES = 6, HANG_MS = 5000, STEPS = 30000, RANKS = 4, PROCESSES = 4096, ATTEMPTS = 4096 };

/* The process of a rank as the host knows it, and the reports about it. */
struct process {
    int64_t job;
    int32_t attempt, rank;
    bool spawned, dead, drained, closed, discarded, fenced;
    bool term, kill, deaf, hangs, waits, joined;
    int device;
    int64_t kill_ms, fenced_ms;
    int started, ended; /* reports since the last attach */
    int ended_ever;
};

struct sim_attempt {
    int64_t job;
    int32_t attempt;
    bool ended_reported, acknowledged, removed;
};

struct world {
    uint64_t seed, random;
    int64_t now, tick_ms;
    struct agent_core *core;
    struct agent_actions actions;
    struct process processes[PROCESSES];
    struct sim_attempt attempts[ATTEMPTS];
    int n_processes, n_attempts;
    int first_process, first_attempt; /* all earlier ones have ended */
    bool device_failed[DEVICES], inspecting[DEVICES], attached, leaving, end_stream, exited;
    int started, finished, crashed, hung, killed, refused, fenced, quarantined, restarts;
};

static uint64_t draw(struct world *w) { /* splitmix64 */
    uint64_t z = w->random += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}
static int below(struct world *w, int n) { return (int)(draw(w) % (uint64_t)n); }
static bool chance(struct world *w, int one_in) { return below(w, one_in) == 0; }

#define REQUIRE(w, cond, ...)                                                                                          \
    do {                                                                                                               \
        if (!(cond)) {                                                                                                 \
            print_error("TRAINYARD_SEED=%llu at %lld ms: ", (unsigned long long)(w)->seed, (long long)(w)->now);       \
            print_error(__VA_ARGS__);                                                                                  \
            fail();                                                                                                    \
        }                                                                                                              \
    } while (0)

static struct process *process_of(struct world *w, int64_t job, int32_t attempt, int32_t rank) {
    for (int i = w->n_processes; i-- > w->first_process;)
        if (w->processes[i].job == job && w->processes[i].attempt == attempt && w->processes[i].rank == rank)
            return &w->processes[i];
    return NULL;
}

static struct sim_attempt *attempt_of(struct world *w, int64_t job, int32_t attempt) {
    for (int i = w->n_attempts; i-- > w->first_attempt;)
        if (w->attempts[i].job == job && w->attempts[i].attempt == attempt)
            return &w->attempts[i];
    return NULL;
}

static void step(struct world *w, struct agent_event ev);

/* ---- what the agent's I/O would do ---- */

static void do_spawn(struct world *w, const struct agent_action *a) {
    const struct agent_attempt *at = agent_core_find(w->core, a->job, a->attempt);
    struct agent_event ev = { .job = a->job, .attempt = a->attempt, .text = "no process left" };
    const bool cuda = a->order != NULL;
    int open = 0;
    REQUIRE(w, at, "an unknown attempt is spawned\n");
    for (size_t i = 0; i < at->n_ranks; i++) {
        const struct agent_rank *r = &at->ranks[i];
        struct process *p = process_of(w, at->job, at->attempt, r->rank);
        REQUIRE(w, at->threads >= 1 && at->threads <= CORES, "a rank gets %d threads\n", at->threads);
        REQUIRE(w, (r->device != AGENT_NO_DEVICE) == cuda, "a rank has a device that it did not ask for, or none\n");
        for (int j = w->first_process; cuda && j < w->n_processes; j++)
            REQUIRE(w, !w->processes[j].spawned || w->processes[j].closed || w->processes[j].device != r->device,
                    "device %d has two ranks\n", r->device);
        if (cuda)
            REQUIRE(w, !w->device_failed[r->device], "a rank gets a failed device\n");
        if (chance(w, 40)) {
            ev.kind = AGENT_EV_START_FAILED;
            step(w, ev);
            return;
        }
        p->spawned = true;
        p->device = r->device;
        p->deaf = chance(w, 4);
        ev.kind = AGENT_EV_SPAWNED;
        ev.rank = p->rank;
        ev.pid = 1000 + (int32_t)(p - w->processes);
        step(w, ev);
    }
    for (int j = w->first_process; j < w->n_processes; j++)
        open += w->processes[j].spawned && !w->processes[j].closed && w->processes[j].device == AGENT_NO_DEVICE;
    REQUIRE(w, open <= 2 * SLOTS, "%d processes run on %d slots\n", open, SLOTS);
    ev.kind = chance(w, 60) ? AGENT_EV_START_FAILED : AGENT_EV_STARTED;
    step(w, ev);
}

static void do_report(struct world *w, const struct agent_action *a) {
    struct process *p = process_of(w, a->job, a->attempt, a->rank);
    const struct agent_rank *r = agent_core_find_rank(w->core, a->job, a->attempt, a->rank);
    REQUIRE(w, p && r, "a report of an unknown rank\n");
    switch (a->kind) {
    case AGENT_ACT_REPORT_STARTED:
        REQUIRE(w, p->spawned && p->started == 0 && p->ended_ever == 0, "rank %d is reported as started twice\n",
                a->rank);
        p->started++;
        w->started++;
        break;
    case AGENT_ACT_REPORT_ENDED:
        REQUIRE(w, !p->spawned || p->dead, "rank %d is reported as ended and runs\n", a->rank);
        REQUIRE(w, r->has_end && *r->end.message, "rank %d ended without a reason\n", a->rank);
        REQUIRE(w, p->ended == 0, "the end of rank %d is reported twice on one stream\n", a->rank);
        p->ended++;
        p->ended_ever++;
        break;
    case AGENT_ACT_REPORT_JOINED:
        REQUIRE(w, p->joined && p->ended == 0, "rank %d is reported as joined after its end\n", a->rank);
        break;
    default: REQUIRE(w, p->spawned && p->ended == 0, "a report about rank %d after its end\n", a->rank);
    }
}

static void do_attempt_ended(struct world *w, const struct agent_action *a) {
    const struct agent_attempt *at = agent_core_find(w->core, a->job, a->attempt);
    struct sim_attempt *s = attempt_of(w, a->job, a->attempt);
    for (size_t i = 0; at && i < at->n_ranks; i++) {
        const struct process *p = process_of(w, at->job, at->attempt, at->ranks[i].rank);
        REQUIRE(w, !p->spawned || p->closed, "rank %d outlives its attempt\n", p->rank);
        REQUIRE(w, p->ended_ever > 0, "attempt %d ended before its rank %d\n", a->attempt, p->rank);
    }
    if (s)
        s->ended_reported = true;
}

static void do_worker(struct world *w, const struct agent_action *a) {
    struct process *p = process_of(w, a->job, a->attempt, a->rank);
    REQUIRE(w, p, "an order for an unknown rank\n");
    if (a->kind == AGENT_ACT_DISCARD) {
        p->discarded = true;
        return;
    }
    REQUIRE(w, p->spawned && !p->closed, "an order for rank %d, which has no process\n", a->rank);
    switch (a->kind) {
    case AGENT_ACT_TERM: p->term = true; break;
    case AGENT_ACT_KILL:
        REQUIRE(w, !p->dead && !p->kill, "rank %d is killed after its death, or twice\n", a->rank);
        p->kill = true;
        p->kill_ms = w->now;
        w->killed++;
        break;
    case AGENT_ACT_CLOSE:
        REQUIRE(w, p->dead && p->drained, "rank %d is closed while it runs, or holds records\n", a->rank);
        p->closed = true;
        break;
    default: break;
    }
}

static void do_action(struct world *w, const struct agent_action *a) {
    switch (a->kind) {
    case AGENT_ACT_SPAWN: do_spawn(w, a); break;
    case AGENT_ACT_SAVE:
        REQUIRE(w, agent_core_find(w->core, a->job, a->attempt), "an unknown attempt is saved\n");
        break;
    case AGENT_ACT_REMOVE:
        REQUIRE(w, !attempt_of(w, a->job, a->attempt)->removed, "attempt %d is removed twice\n", a->attempt);
        attempt_of(w, a->job, a->attempt)->removed = true;
        step(w, (struct agent_event){ .kind = AGENT_EV_REMOVED, .job = a->job, .attempt = a->attempt });
        break;
    case AGENT_ACT_REPORT_ATTEMPT_ENDED: do_attempt_ended(w, a); break;
    case AGENT_ACT_REPORT_STARTED:
    case AGENT_ACT_REPORT_ADDRESS:
    case AGENT_ACT_REPORT_JOINED:
    case AGENT_ACT_REPORT_THREADS:
    case AGENT_ACT_REPORT_ENDED: do_report(w, a); break;
    case AGENT_ACT_INSPECT: w->inspecting[a->device] = true; break;
    case AGENT_ACT_QUARANTINE:
        REQUIRE(w, !w->device_failed[a->device], "device %d is quarantined twice\n", a->device);
        w->device_failed[a->device] = true;
        w->quarantined++;
        break;
    case AGENT_ACT_END_STREAM: w->end_stream = true; break;
    case AGENT_ACT_EXIT: w->exited = true; break;
    default: do_worker(w, a);
    }
}

static bool acting;

static void step(struct world *w, struct agent_event ev) {
    ev.wall_us = 1000 * w->now;
    agent_core_step(w->core, &ev, w->now, &w->actions);
    if (acting)
        return;
    acting = true;
    for (size_t i = 0; i < w->actions.n; i++) {
        const struct agent_action a = w->actions.items[i];
        do_action(w, &a);
    }
    w->actions.n = 0;
    acting = false;
}

/* ---- the workers ---- */

static struct agent_event event_of(const struct process *p, enum agent_event_kind kind) {
    return (struct agent_event){ .kind = kind, .job = p->job, .attempt = p->attempt, .rank = p->rank };
}

static void process_ends(struct world *w, struct process *p, struct exit_status status) {
    struct agent_event ev = event_of(p, AGENT_EV_EXITED);
    p->dead = true;
    p->drained = !p->waits;
    ev.status = status;
    ev.step = -1;
    ev.flag = p->drained;
    step(w, ev);
}

static void process_finishes(struct world *w, struct process *p, exit_cause cause) {
    const struct final_report final = { .received = true, .cause = cause, .step = 7, .message = "as it says" };
    struct agent_event ev = event_of(p, AGENT_EV_FINAL_REPORT);
    ev.final = &final;
    step(w, ev);
    w->finished += cause == EXIT_CAUSE(FINISHED);
    process_ends(w, p, (struct exit_status){ .exit_code = cause == EXIT_CAUSE(FINISHED) ? 0 : 20 + (int)cause });
}

static void process_lives(struct world *w, struct process *p) {
    struct agent_event ev = event_of(p, AGENT_EV_ALIVE);
    if (p->kill && w->now > p->kill_ms) {
        process_ends(w, p, (struct exit_status){ .exit_code = -1, .signal = SIGKILL });
    } else if (p->kill) {
        return;
    } else if (p->term && !p->deaf) {
        process_ends(w, p, (struct exit_status){ .exit_code = -1, .signal = SIGTERM });
    } else if (chance(w, 300)) {
        w->crashed++;
        process_ends(w, p, (struct exit_status){ .exit_code = -1, .signal = SIGSEGV });
    } else if (chance(w, 200)) {
        process_finishes(w, p, chance(w, 3) ? EXIT_CAUSE(NUMERIC) : EXIT_CAUSE(FINISHED));
    } else if (chance(w, 800)) {
        p->hangs = true;
        w->hung++;
    } else if (chance(w, 150)) {
        ev.kind = AGENT_EV_SPOOL_WAIT;
        p->waits = ev.flag = !p->waits;
        step(w, ev);
    } else if (chance(w, 600)) {
        ev.kind = AGENT_EV_BROKEN;
        ev.text = "wrote nonsense";
        step(w, ev);
    } else if (!p->hangs && !p->waits) {
        ev.kind = !p->joined && chance(w, 3) ? AGENT_EV_JOINED : chance(w, 4) ? AGENT_EV_ADDRESS : AGENT_EV_ALIVE;
        p->joined |= ev.kind == AGENT_EV_JOINED;
        ev.progress = w->now;
        step(w, ev);
    }
}

/* The spool has space again: the output that a dead process left in its pipes is stored. */
static void process_drains(struct world *w, struct process *p) {
    struct agent_event ev = event_of(p, AGENT_EV_SPOOL_WAIT);
    if (!chance(w, 5))
        return;
    p->waits = false;
    step(w, ev);
    ev = event_of(p, AGENT_EV_EXITED);
    p->drained = true;
    ev.flag = true;
    ev.step = 3;
    ev.status = (struct exit_status){ .exit_code = 0 };
    step(w, ev);
}

/* ---- the controller and the host ---- */

static void start(struct world *w) {
    static const char an_order;
    int32_t ranks[2 * RANKS];
    const bool cuda = chance(w, 3);
    const size_t n = 1 + (size_t)below(w, chance(w, 8) ? 2 * RANKS : RANKS);
    const int known = w->n_attempts - w->first_attempt;
    const int repeated = known && chance(w, 10) ? w->first_attempt + below(w, known) : -1;
    if (w->n_attempts == ATTEMPTS || w->n_processes + 2 * RANKS > PROCESSES)
        return;
    struct sim_attempt *s = &w->attempts[repeated >= 0 ? repeated : w->n_attempts];
    if (s->removed)
        return; /* the controller numbers attempts anew */
    if (repeated < 0) {
        *s = (struct sim_attempt){ .job = 1 + below(w, 1 << 20), .attempt = ++w->n_attempts };
        for (size_t i = 0; i < n; i++)
            w->processes[w->n_processes++] = (struct process){
                .job = s->job, .attempt = s->attempt, .rank = (int32_t)(3 + 2 * i), .device = AGENT_NO_DEVICE
            };
    }
    for (size_t i = 0; i < n; i++)
        ranks[i] = (int32_t)(3 + 2 * i);
    const struct agent_start order = { .world_size = 99,
                                       .ranks = ranks,
                                       .n_ranks = n,
                                       .cuda = cuda,
                                       .invalid = chance(w, 50) ? "the start order has no spec" : NULL,
                                       .order = cuda ? &an_order : NULL };
    const int started = w->started;
    step(w, (struct agent_event){ .kind = AGENT_EV_START, .job = s->job, .attempt = s->attempt, .start = &order });
    w->refused += w->started == started && repeated < 0;
}

static void controller_acts(struct world *w) {
    const int n = w->n_attempts - w->first_attempt;
    struct sim_attempt *s = &w->attempts[w->first_attempt + (n > 0 ? below(w, n) : 0)];
    if (n == 0 || s->removed)
        return;
    struct agent_event ev = { .job = s->job, .attempt = s->attempt, .text = "a person asked for it" };
    if (s->ended_reported || chance(w, 200)) {
        s->acknowledged = true;
        ev.kind = AGENT_EV_ACKNOWLEDGED;
    } else if (!chance(w, 6)) {
        return;
    } else if (chance(w, 3)) {
        ev.kind = AGENT_EV_FENCED;
        w->fenced++;
        for (int i = w->first_process; i < w->n_processes; i++)
            if (w->processes[i].job == s->job && w->processes[i].attempt == s->attempt && !w->processes[i].fenced) {
                w->processes[i].fenced = true;
                w->processes[i].fenced_ms = w->now;
            }
    } else {
        ev.kind = AGENT_EV_STOP;
        ev.grace_ms = below(w, 3) * 2500;
    }
    step(w, ev);
}

static void attach(struct world *w) {
    for (int i = 0; i < w->n_processes; i++)
        w->processes[i].ended = 0; /* a new stream */
    for (const struct agent_attempt *at = agent_core_first(w->core); at; at = at->next)
        for (size_t i = 0; at->ended && i < at->n_ranks; i++) /* the hello reports these */
            process_of(w, at->job, at->attempt, at->ranks[i].rank)->ended = 1;
    step(w, (struct agent_event){ .kind = AGENT_EV_ATTACHED });
}

static void device_acts(struct world *w) {
    const int device = below(w, DEVICES);
    if (w->inspecting[device] && chance(w, 2)) {
        if (chance(w, 3))
            step(w, (struct agent_event){ .kind = AGENT_EV_DEVICE_UNHEALTHY, .device = device, .text = "Xid 79" });
        w->inspecting[device] = false;
        step(w, (struct agent_event){ .kind = AGENT_EV_DEVICE_INSPECTED, .device = device });
    } else if (chance(w, 2000)) {
        step(w, (struct agent_event){
                    .kind = AGENT_EV_DEVICE_UNHEALTHY, .device = device, .text = "it fell off the bus" });
    }
}

static struct agent_core *core_new(int64_t now) {
    static const struct agent_device devices[DEVICES] = { { .index = 4 }, { .index = 5 } };
    const struct agent_core_config config = { .slots = SLOTS,
                                              .cores = CORES,
                                              .threads_per_rank = 1,
                                              .hang_ms = HANG_MS,
                                              .n_devices = DEVICES,
                                              .devices = devices };
    return agent_core_new(&config, now);
}

/* SIGKILL of the agent: its workers die with it, and its next start reads the attempts from the directory. */
static void restart(struct world *w) {
    struct agent_core *old = w->core;
    w->core = core_new(w->now);
    for (const struct agent_attempt *at = agent_core_first(old); at; at = at->next) {
        for (size_t i = 0; i < at->n_ranks; i++)
            at->ranks[i].state = AGENT_RANK_CLOSED; /* the directory has no state: nothing was handed over */
        agent_core_load(w->core, at, 1000 * w->now);
        for (size_t i = 0; i < at->n_ranks; i++) {
            struct process *p = process_of(w, at->job, at->attempt, at->ranks[i].rank);
            p->dead = p->drained = p->closed = p->spawned;
            p->ended_ever = 1;
        }
        attempt_of(w, at->job, at->attempt)->ended_reported = true; /* by the hello */
    }
    agent_core_free(old);
    memset(w->device_failed, 0, sizeof w->device_failed);
    memset(w->inspecting, 0, sizeof w->inspecting);
    w->restarts++;
}

/* ---- the rules ---- */

static void check(struct world *w) {
    bool in_use[DEVICES] = { false };
    for (const struct agent_attempt *at = agent_core_first(w->core); at; at = at->next) {
        bool all_closed = true;
        for (size_t i = 0; i < at->n_ranks; i++) {
            const struct agent_rank *r = &at->ranks[i];
            const struct process *p = process_of(w, at->job, at->attempt, r->rank);
            all_closed &= r->state == AGENT_RANK_CLOSED;
            REQUIRE(w, (r->state == AGENT_RANK_RUNS) == (p->spawned && !p->dead), "the core is wrong about rank %d\n",
                    r->rank);
            REQUIRE(w, r->state != AGENT_RANK_CLOSED || r->has_end, "rank %d is closed without an end\n", r->rank);
            REQUIRE(w, r->state != AGENT_RANK_CLOSED || r->device == AGENT_NO_DEVICE, "a closed rank has a device\n");
            REQUIRE(w, !p->fenced || p->dead || !p->spawned || p->kill, "a fenced rank was not killed\n");
            REQUIRE(w, !p->hangs || p->dead || p->kill || p->waits || w->now - r->seen_ms < HANG_MS + 3000,
                    "rank %d hangs and was not killed\n", r->rank);
            if (r->device == AGENT_NO_DEVICE)
                continue;
            REQUIRE(w, !in_use[r->device], "device %d has two ranks\n", r->device);
            in_use[r->device] = true;
        }
        REQUIRE(w, at->ended == all_closed, "attempt %d: ended is %d\n", at->attempt, at->ended);
    }
}

static void pass_time(struct world *w) {
    const int64_t due = agent_core_deadline_ms(w->core);
    w->now += chance(w, 400) ? 8000 : below(w, 200); /* sometimes the agent itself was stopped */
    if (due <= w->now || chance(w, 3))
        step(w, (struct agent_event){
                    .kind = AGENT_EV_TICK, .uploaded = !chance(w, 3), .stream_ended = w->end_stream && chance(w, 2) });
}

static void one_step(struct world *w, bool faults) {
    while (w->first_attempt < w->n_attempts && w->attempts[w->first_attempt].removed)
        w->first_attempt++;
    while (w->first_process < w->n_processes &&
           w->processes[w->first_process].attempt <= w->first_attempt) /* attempts are numbered from 1 */
        w->first_process++;
    for (int i = w->first_process; i < w->n_processes; i++) {
        struct process *p = &w->processes[i];
        if (p->spawned && !p->dead)
            process_lives(w, p);
        else if (p->dead && !p->drained)
            process_drains(w, p);
    }
    device_acts(w);
    pass_time(w);
    if (faults) {
        if (chance(w, 15))
            start(w);
        if (chance(w, 2))
            controller_acts(w);
        if (chance(w, 100))
            attach(w);
        if (chance(w, 2000))
            restart(w);
    }
    check(w);
}

static void run_world(uint64_t seed) {
    struct world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->seed = w->random = seed;
    w->now = 1;
    w->core = core_new(w->now);
    for (int i = 0; i < STEPS; i++)
        one_step(w, true);
    step(w, (struct agent_event){ .kind = AGENT_EV_LEAVE });
    const int64_t left_ms = w->now;
    while (!w->exited && w->now - left_ms < 60000)
        one_step(w, false);
    REQUIRE(w, w->exited, "the agent was asked to leave and did not exit\n");
    for (int i = 0; i < w->n_processes; i++)
        REQUIRE(w, !w->processes[i].spawned || w->processes[i].dead || w->processes[i].kill,
                "rank %d outlives its agent\n", w->processes[i].rank);
    REQUIRE(w,
            w->started && w->finished && w->crashed && w->hung && w->killed && w->refused && w->fenced &&
                w->quarantined && w->restarts,
            "a kind of event never happened: %d %d %d %d %d %d %d %d %d\n", w->started, w->finished, w->crashed,
            w->hung, w->killed, w->refused, w->fenced, w->quarantined, w->restarts);
    print_message("TRAINYARD_SEED=%llu: %d attempts, %d ranks started, %d finished, %d crashed, %d hung, %d killed, "
                  "%d starts refused, %d devices quarantined\n",
                  (unsigned long long)seed, w->n_attempts, w->started, w->finished, w->crashed, w->hung, w->killed,
                  w->refused, w->quarantined);
    agent_core_free(w->core);
    agent_actions_done(&w->actions);
    free(w);
}

static void random_histories_keep_every_rule_and_every_process_ends(void **state) {
    (void)state;
    const char *seed = getenv("TRAINYARD_SEED");
    if (seed) {
        run_world(strtoull(seed, NULL, 10));
        return;
    }
    for (uint64_t s = 1; s <= 8; s++)
        run_world(s);
    run_world((uint64_t)time(NULL));
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(random_histories_keep_every_rule_and_every_process_ends) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
