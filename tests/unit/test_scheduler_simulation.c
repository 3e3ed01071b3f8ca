/* The scheduler against random events: agents crash, vanish and come back, streams break, a controller starts again
 * from its rows, and users pause, resume, cancel and retry jobs. After every step the rules of scheduler.h must hold,
 * and once the faults stop every job must end. A failure prints its seed: TRAINYARD_SEED=n replays it. */
#include "service/scheduler/explain.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum {
    AGENTS = 5,
    JOBS = 500,
    RANKS = 6,
    PARTS = 64,
    INBOX = 256,
    AWAITS = 4096,
    FAULT_STEPS = 30000,
    HEAL_STEPS = 200000
};

struct sim_part { /* an attempt on an agent, as it really is */
    bool used, ended, stopping;
    int64_t job;
    int attempt, n_ranks, ranks[RANKS];
    bool offered, joined;
    enum rank_end_cause cause;
};
struct sim_agent {
    char id[SCHEDULER_EXECUTOR_ID_BYTES];
    int slots;
    int64_t incarnation, away_until;
    bool up, connected, drained, drained_now;
    bool told_away; /* the controller knows that it is not there, or leaves */
    struct sim_part parts[PARTS];
    struct scheduler_action inbox[INBOX];
    int n_inbox;
};
struct sim_job { /* its rows */
    struct scheduler_job_row row;
    bool attempt_open, final_committed;
    unsigned lacks;      /* a bit for each host that lacks something that it needs */
    unsigned has_failed; /* hosts recorded as having failed it since it was submitted or retried */
    struct scheduler_avoided avoided[SCHEDULER_MAX_AVOIDED];
    int n_avoided;
    bool by_host;                    /* its last attempt ended by the fault of a host that lacked something */
    bool stored[RANKS], lost[RANKS]; /* of the current attempt: records in the database; gone with their host */
    char placement[RANKS][SCHEDULER_EXECUTOR_ID_BYTES];
};
struct world {
    uint64_t seed, random;
    bool placing_waits; /* jobs start after the next event without `more` */
    int64_t now;
    struct scheduler *scheduler;
    struct sim_agent agents[AGENTS];
    struct sim_job jobs[JOBS + 1]; /* by id, from 1 */
    int n_jobs;
    struct scheduler_action awaits[AWAITS];
    int n_awaits;
    int succeeded, failed, cancelled, left, paused, moved;
    int explained;
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

static struct sim_agent *agent_of(struct world *w, const char *id) {
    for (int i = 0; i < AGENTS; i++)
        if (strcmp(w->agents[i].id, id) == 0)
            return &w->agents[i];
    return NULL;
}

static struct sim_part *part_of(struct sim_agent *a, int64_t job, int attempt) {
    for (int i = 0; i < PARTS; i++)
        if (a->parts[i].used && a->parts[i].job == job && a->parts[i].attempt == attempt)
            return &a->parts[i];
    return NULL;
}

struct others {
    const struct world *w;
    const struct sim_job *job;
    int free;
};

static void count_others(void *ctx, const struct scheduler_executor_view *v) {
    struct others *o = ctx;
    for (int i = 0; i < AGENTS; i++)
        if (strcmp(o->w->agents[i].id, v->id) == 0 && v->attached && !v->leaving && !v->drained && v->fenced == 0 &&
            !(o->job->has_failed & 1u << i))
            o->free += v->slots[SCHEDULER_SLOT_CPU] - v->used[SCHEDULER_SLOT_CPU];
}

/* A job must never fail because some hosts lack something while other hosts, which have not failed it, are free. */
static void check_failed(struct world *w, const struct sim_job *job) {
    struct others o = { w, job, 0 };
    scheduler_each_executor(w->scheduler, count_others, &o);
    REQUIRE(w, o.free < job->row.world_size, "job %lld fails by its hosts' fault, and %d slots of others are free\n",
            (long long)job->row.job, o.free);
}

/* Changes the state as the database would. */
static void store_state(struct world *w, struct sim_job *job, const struct scheduler_action *a) {
    REQUIRE(w, job->row.state == a->from, "job %lld is %s, not %s\n", (long long)a->job, job_state_name(job->row.state),
            job_state_name(a->from));
    REQUIRE(w, job_state_edge(a->from, a->to, a->cause), "%s -> %s is no edge\n", job_state_name(a->from),
            job_state_name(a->to));
    if (a->from == JOB_STATE_PREEMPTING || (a->from == JOB_STATE_PAUSING && a->to == JOB_STATE_PAUSED))
        REQUIRE(w, a->restarts == job->row.restarts, "job %lld: to leave a host counts as a restart\n",
                (long long)a->job);
    if (a->to == JOB_STATE_PAUSED)
        REQUIRE(w, !job->attempt_open, "job %lld is paused with an open attempt\n", (long long)a->job);
    job->row.state = a->to;
    job->row.restarts = a->restarts;
    if (a->to == JOB_STATE_SUCCEEDED) {
        REQUIRE(w, job->final_committed, "job %lld succeeded without its checkpoint\n", (long long)a->job);
        for (int r = 0; r < job->row.world_size; r++)
            REQUIRE(w, job->stored[r], "job %lld succeeded without rank %d's records\n", (long long)a->job, r);
    }
    if (job_state_final(a->to))
        REQUIRE(w, !job->attempt_open, "job %lld ended with an open attempt\n", (long long)a->job);
    if (a->to == JOB_STATE_FAILED && a->from != JOB_STATE_PAUSING && job->by_host)
        check_failed(w, job);
    if (job_state_final(a->to)) {
        job->n_avoided = 0;
        job->has_failed = 0;
    }
    w->left += a->from == JOB_STATE_PREEMPTING && a->to == JOB_STATE_QUEUED;
    w->succeeded += a->to == JOB_STATE_SUCCEEDED;
    w->failed += a->to == JOB_STATE_FAILED;
    w->cancelled += a->to == JOB_STATE_CANCELLED;
    w->paused += a->from == JOB_STATE_PAUSING && a->to == JOB_STATE_PAUSED;
}

/* Stores one row for each host. */
static void store_fault(struct world *w, struct sim_job *job, const struct scheduler_action *a) {
    int at = 0;
    const struct sim_agent *agent = agent_of(w, a->executor);
    while (at < job->n_avoided && strcmp(job->avoided[at].executor, agent->id) != 0)
        at++;
    if (at < SCHEDULER_MAX_AVOIDED)
        job->avoided[at] = (struct scheduler_avoided){
            .executor = agent->id, .cause = a->blamed, .left_ms = w->now + SCHEDULER_AVOID_MS, .why = "it lacks it"
        };
    job->n_avoided += at == job->n_avoided && at < SCHEDULER_MAX_AVOIDED;
    if (a->blamed == RANK_END_HOST_FAULT) {
        job->has_failed |= 1u << (agent - w->agents);
        job->by_host = true;
    }
}

static void store_attempt(struct world *w, struct sim_job *job, const struct scheduler_action *a) {
    store_state(w, job, a);
    REQUIRE(w, a->attempt > job->row.attempt, "attempt %d does not grow\n", a->attempt);
    REQUIRE(w, !job->attempt_open, "job %lld is placed twice\n", (long long)a->job);
    job->row.attempt = a->attempt;
    job->attempt_open = true;
    w->moved += job->by_host;
    job->by_host = false;
    job->final_committed = false;
    memset(job->stored, 0, sizeof job->stored);
    memset(job->lost, 0, sizeof job->lost);
    memcpy(job->placement, a->placement, (size_t)a->world_size * sizeof *a->placement);
    for (int r = 0; r < a->world_size; r++) {
        const struct sim_agent *agent = agent_of(w, a->placement[r]);
        REQUIRE(w, !agent->drained, "job %lld is placed on %s, which is drained\n", (long long)a->job, agent->id);
        REQUIRE(w, !agent->told_away, "job %lld is placed on %s, which is away\n", (long long)a->job, agent->id);
    }
}

static void step(struct world *w, const struct scheduler_event *ev);

static void tell_away(struct world *w, struct sim_agent *a, enum scheduler_event_kind kind) {
    a->told_away = true; /* set before the event: no action that follows from it may place a rank there */
    step(w, &(struct scheduler_event){ .kind = kind, .executor = a->id, .attach = { .incarnation = a->incarnation } });
}

/* Loses the records of every open attempt on that host, except for those that the agent still knows. */
static void lose_records(struct world *w, const char *id, struct sim_agent *known) {
    for (int64_t j = 1; j <= w->n_jobs; j++) {
        struct sim_job *job = &w->jobs[j];
        if (!job->attempt_open || (known && part_of(known, j, job->row.attempt)))
            continue;
        for (int r = 0; r < job->row.world_size; r++)
            if (strcmp(job->placement[r], id) == 0)
                job->lost[r] = true;
    }
}

static void apply(struct world *w, struct scheduler_actions *actions) {
    for (size_t i = 0; i < actions->n; i++) {
        const struct scheduler_action *a = &actions->items[i];
        struct sim_job *job = a->job ? &w->jobs[a->job] : NULL;
        struct sim_agent *agent = a->executor[0] ? agent_of(w, a->executor) : NULL;
        switch (a->kind) {
        case ACT_ATTEMPT_CREATE: store_attempt(w, job, a); break;
        case ACT_JOB_STATE: store_state(w, job, a); break;
        case ACT_ATTEMPT_END:
            REQUIRE(w, job->attempt_open && job->row.attempt == a->attempt, "an attempt ends twice\n");
            for (int r = 0; r < job->row.world_size; r++)
                REQUIRE(w, job->stored[r] || job->lost[r], "job %lld: rank %d has not ended its sequence\n",
                        (long long)a->job, r);
            job->attempt_open = false;
            job->row.restarts = a->restarts;
            REQUIRE(w, a->restarts <= job->row.max_restarts, "more restarts than allowed\n");
            break;
        case ACT_HOST_FAULT: store_fault(w, job, a); break;
        case ACT_EXECUTOR_LOST: lose_records(w, a->executor, NULL); break;
        case ACT_AWAIT_STORED:
            REQUIRE(w, w->n_awaits < AWAITS, "too many waits\n");
            w->awaits[w->n_awaits++] = *a;
            break;
        case ACT_SEND_START:
        case ACT_SEND_RENDEZVOUS:
        case ACT_SEND_STOP:
        case ACT_SEND_ACKNOWLEDGE:
            if (agent->connected) {
                REQUIRE(w, agent->n_inbox < INBOX, "an inbox is full\n");
                agent->inbox[agent->n_inbox++] = *a;
            }
            break;
        default: break;
        }
    }
    scheduler_actions_clear(actions);
}

static void check_slots(void *ctx, const struct scheduler_executor_view *v) {
    struct world *w = ctx;
    REQUIRE(w, v->used[SCHEDULER_SLOT_CPU] >= 0, "%s uses %d slots\n", v->id, v->used[SCHEDULER_SLOT_CPU]);
    if (v->attached)
        REQUIRE(w, v->used[SCHEDULER_SLOT_CPU] <= v->slots[SCHEDULER_SLOT_CPU], "%s is overcommitted\n", v->id);
}

static void check_job(void *ctx, const struct scheduler_job_view *v) {
    struct world *w = ctx;
    REQUIRE(w, w->jobs[v->job].row.state == v->state, "job %lld: memory and row differ\n", (long long)v->job);
    REQUIRE(w, w->jobs[v->job].attempt_open == v->attempt_open, "job %lld: attempt and row differ\n",
            (long long)v->job);
}

/* A job that waits after a step has a reason, and each reason has a solution. Checks one job in each step, in turn. */
static void check_explanation(struct world *w) {
    struct scheduler_explanation x;
    const int64_t id = w->n_jobs ? 1 + w->explained++ % w->n_jobs : 0;
    scheduler_explain(w->scheduler, id, w->now, &x);
    if (!x.live)
        return;
    REQUIRE(w, x.state == w->jobs[id].row.state, "job %lld: explained in another state\n", (long long)id);
    REQUIRE(w, x.summary[0], "job %lld: nothing is said\n", (long long)id);
    REQUIRE(w, x.state != JOB_STATE_QUEUED || x.n_reasons > 0, "job %lld waits without a reason\n", (long long)id);
    for (int i = 0; i < x.n_reasons; i++)
        REQUIRE(w, x.reasons[i].kind != SCHEDULER_WAIT_NOTHING && x.reasons[i].message[0] && x.reasons[i].remedy[0],
                "job %lld: '%s', '%s'\n", (long long)id, x.reasons[i].message, x.reasons[i].remedy);
}

static void step(struct world *w, const struct scheduler_event *ev) {
    struct scheduler_actions actions = { 0 };
    struct scheduler_event event = *ev;
    event.more = chance(w, 4); /* jobs start after a later event */
    scheduler_step(w->scheduler, &event, w->now, &actions);
    apply(w, &actions);
    scheduler_actions_done(&actions);
    scheduler_each_executor(w->scheduler, check_slots, w);
    scheduler_each_job(w->scheduler, check_job, w);
    if (event.kind != EV_EXECUTOR_SEEN) /* which places nothing */
        w->placing_waits = event.more;
    if (!w->placing_waits)
        check_explanation(w);
    /* The processes that really run, including those of fenced attempts, never need more slots than exist. */
    for (int i = 0; i < AGENTS; i++) {
        int running = 0;
        for (int p = 0; p < PARTS; p++)
            if (w->agents[i].parts[p].used && !w->agents[i].parts[p].ended)
                running += w->agents[i].parts[p].n_ranks;
        REQUIRE(w, running <= w->agents[i].slots, "%s really runs %d ranks on %d slots\n", w->agents[i].id, running,
                w->agents[i].slots);
    }
}

static int ends_of(const struct sim_part *part, struct rank_end ret[RANKS]) {
    for (int r = 0; r < part->n_ranks; r++)
        ret[r] = (struct rank_end){ .rank = part->ranks[r], .cause = part->cause, .last_sequence = 5 };
    return part->n_ranks;
}

static void attach(struct world *w, struct sim_agent *a) {
    struct scheduler_part_report reports[PARTS];
    struct scheduler_rank_report ranks[PARTS][RANKS];
    struct rank_end ends[PARTS][RANKS];
    int n = 0;
    for (int i = 0; i < PARTS; i++) {
        const struct sim_part *part = &a->parts[i];
        if (!part->used)
            continue;
        for (int r = 0; r < part->n_ranks; r++)
            ranks[n][r] = (struct scheduler_rank_report){ part->ranks[r], part->offered, part->joined };
        reports[n] = (struct scheduler_part_report){ .job = part->job,
                                                     .attempt = part->attempt,
                                                     .ended = part->ended,
                                                     .n_ranks = part->n_ranks,
                                                     .ranks = ranks[n],
                                                     .n_ends = ends_of(part, ends[n]),
                                                     .ends = ends[n] };
        n++;
    }
    a->connected = true;
    a->told_away = false;
    a->n_inbox = 0;
    lose_records(w, a->id, a);
    struct scheduler_event ev = { .kind = EV_EXECUTOR_ATTACHED, .executor = a->id };
    ev.attach.incarnation = a->incarnation;
    ev.attach.slots[SCHEDULER_SLOT_CPU] = a->slots;
    ev.attach.parts = reports;
    ev.attach.n_parts = n;
    step(w, &ev);
}

static void tell_end(struct world *w, struct sim_agent *a, const struct sim_part *part) {
    if (!a->connected)
        return;
    struct rank_end ends[RANKS];
    struct scheduler_event ev = {
        .kind = EV_PART_ENDED, .executor = a->id, .job = part->job, .attempt = part->attempt
    };
    ev.ends = ends;
    ev.n_ends = ends_of(part, ends);
    if (chance(w, 2)) {
        ev.kind = EV_RANK_ENDED;
        step(w, &ev);
        ev.kind = EV_PART_ENDED;
    }
    step(w, &ev);
}

static void end_part(struct world *w, struct sim_agent *a, struct sim_part *part, enum rank_end_cause cause) {
    if (part->ended)
        return;
    part->ended = true;
    part->cause = cause;
    tell_end(w, a, part);
}

static void tell_ranks(struct world *w, const struct sim_agent *a, const struct sim_part *part,
                       enum scheduler_event_kind kind) {
    for (int r = 0; a->connected && r < part->n_ranks; r++)
        step(w, &(struct scheduler_event){
                    .kind = kind, .job = part->job, .attempt = part->attempt, .rank = part->ranks[r] });
}

static void start_part(struct world *w, struct sim_agent *a, const struct scheduler_action *m) {
    struct sim_part *part = part_of(a, m->job, m->attempt);
    if (part) {
        if (part->ended)
            tell_end(w, a, part);
        return;
    }
    for (int i = 0; i < PARTS && !part; i++)
        if (!a->parts[i].used)
            part = &a->parts[i];
    REQUIRE(w, part, "an agent has too many parts\n");
    *part = (struct sim_part){ .used = true, .job = m->job, .attempt = m->attempt };
    const struct sim_job *job = &w->jobs[m->job];
    for (int r = 0; r < job->row.world_size; r++)
        if (strcmp(job->placement[r], a->id) == 0)
            part->ranks[part->n_ranks++] = r;
    tell_ranks(w, a, part, EV_RANK_STARTED);
    if (job->lacks & 1u << (a - w->agents)) {
        end_part(w, a, part, RANK_END_HOST_FAULT);
        return;
    }
    part->offered = true;
    tell_ranks(w, a, part, EV_RANK_OFFERED);
}

/* The agent executes its oldest order. */
static void obey(struct world *w, struct sim_agent *a) {
    if (!a->up || !a->connected || a->n_inbox == 0)
        return;
    struct scheduler_action m = a->inbox[0];
    memmove(a->inbox, a->inbox + 1, (size_t)--a->n_inbox * sizeof *a->inbox);
    struct sim_part *part = part_of(a, m.job, m.attempt);
    switch (m.kind) {
    case ACT_SEND_START: start_part(w, a, &m); break;
    case ACT_SEND_RENDEZVOUS:
        if (part && !part->ended && !part->joined) {
            part->joined = true;
            tell_ranks(w, a, part, EV_RANK_JOINED);
        }
        break;
    case ACT_SEND_STOP:
        if (!part)
            step(w, &(struct scheduler_event){
                        .kind = EV_PART_ENDED, .executor = a->id, .job = m.job, .attempt = m.attempt });
        else if (part->ended)
            tell_end(w, a, part);
        else
            part->stopping = true; /* takes its time: the next order may come before it has ended */
        break;
    case ACT_SEND_ACKNOWLEDGE:
        if (part && part->ended)
            part->used = false;
        break;
    default: break;
    }
}

/* Ends all parts of a running gang in the same step, also of one that is about to pause: all finish, or one crashes and
 * the others fail because of it. */
static void gang_ends(struct world *w, int64_t id, bool finish) {
    struct sim_job *job = &w->jobs[id];
    if ((job->row.state != JOB_STATE_RUNNING && job->row.state != JOB_STATE_PAUSING) || !job->attempt_open)
        return;
    int attempt = job->row.attempt, parts = 0, joined = 0;
    for (int i = 0; i < AGENTS; i++) {
        struct sim_part *part = part_of(&w->agents[i], id, attempt);
        parts += part && !part->ended ? part->n_ranks : 0;
        joined += part && !part->ended && part->joined ? part->n_ranks : 0;
    }
    if (finish && joined < job->row.world_size)
        return;
    bool whole = !chance(w, 20); /* else the last checkpoint could not be written */
    if (finish && whole) {
        job->final_committed = true;
        step(w, &(struct scheduler_event){
                    .kind = EV_COMMITTED, .job = id, .attempt = attempt, .step = 10, .final = true });
    } else if (!finish && chance(w, 3)) {
        step(w, &(struct scheduler_event){ .kind = EV_COMMITTED, .job = id, .attempt = attempt, .step = 5 });
    }
    static const enum rank_end_cause crashes[] = { RANK_END_UNKNOWN,    RANK_END_INTERNAL,
                                                   RANK_END_NUMERIC,    RANK_END_CHECKPOINT_BAD,
                                                   RANK_END_HOST_FAULT, RANK_END_CHECKPOINT_UNREADABLE,
                                                   RANK_END_NOT_STARTED };
    bool first = true;
    for (int i = 0; i < AGENTS; i++) {
        struct sim_part *part = part_of(&w->agents[i], id, attempt);
        if (!part)
            continue;
        enum rank_end_cause cause = finish ? RANK_END_FINISHED : first ? crashes[below(w, 7)] : RANK_END_PEER_LOST;
        first = false;
        end_part(w, &w->agents[i], part, cause);
    }
}

/* Usually reports the end of the stream. A network that fails silently does not end it. */
static void tell_detached(struct world *w, struct sim_agent *a) {
    if (!chance(w, 4))
        tell_away(w, a, EV_EXECUTOR_DETACHED);
}

static void kill_agent(struct world *w, struct sim_agent *a) {
    a->up = a->connected = false;
    a->n_inbox = 0;
    tell_detached(w, a);
    a->away_until = w->now + below(w, 20000);
    for (int i = 0; i < PARTS; i++)
        if (a->parts[i].used && !a->parts[i].ended) {
            a->parts[i].ended = true;
            a->parts[i].cause = RANK_END_AGENT_LOST;
        }
}

/* SIGTERM: the agent says goodbye, ends its ranks, reports their ends and exits. */
static void leave(struct world *w, struct sim_agent *a) {
    if (!a->up || !a->connected)
        return;
    tell_away(w, a, EV_EXECUTOR_LEAVES);
    for (int i = 0; i < PARTS; i++)
        if (a->parts[i].used)
            end_part(w, a, &a->parts[i], RANK_END_AGENT_LOST);
    kill_agent(w, a);
}

static void cut_stream(struct world *w, struct sim_agent *a) {
    a->connected = false;
    a->n_inbox = 0;
    tell_detached(w, a);
    a->away_until = w->now + (chance(w, 3) ? 15000 : 300); /* past the lease, its workers alive: a zombie */
}

static void restart_controller(struct world *w) {
    scheduler_free(w->scheduler);
    w->scheduler = scheduler_new(w->now);
    w->n_awaits = 0;
    for (int i = 0; i < AGENTS; i++) {
        w->agents[i].connected = false;
        w->agents[i].told_away = true; /* of a controller that has just begun to lead all are away */
        w->agents[i].n_inbox = 0;
        w->agents[i].away_until = w->now + below(w, 1000);
    }
    for (int i = 0; i < AGENTS; i++) {
        const struct sim_agent *a = &w->agents[i];
        if (a->drained)
            scheduler_load_executor(w->scheduler, a->id, chance(w, 2),
                                    &(struct scheduler_drain){ true, a->drained_now, "new disk" }, w->now);
    }
    for (int64_t id = 1; id <= w->n_jobs; id++) {
        struct sim_job *job = &w->jobs[id];
        if (job_state_final(job->row.state))
            continue;
        const char *names[RANKS];
        for (int r = 0; r < RANKS; r++)
            names[r] = job->placement[r];
        struct scheduler_job_row row = job->row;
        row.placement = job->attempt_open ? names : NULL;
        row.final_committed = job->final_committed;
        row.committed_step = -1;
        struct scheduler_avoided avoided[SCHEDULER_MAX_AVOIDED];
        row.avoided = avoided;
        for (int i = 0; i < job->n_avoided; i++) {
            avoided[i] = job->avoided[i];
            avoided[i].left_ms -= w->now;
            if (avoided[i].left_ms > 0)
                avoided[row.n_avoided++] = avoided[i];
        }
        scheduler_load(w->scheduler, &row, w->now);
    }
}

static void submit(struct world *w) {
    if (w->n_jobs == JOBS)
        return;
    struct sim_job *job = &w->jobs[++w->n_jobs];
    job->row = (struct scheduler_job_row){ .job = w->n_jobs,
                                           .state = JOB_STATE_QUEUED,
                                           .priority = below(w, 3),
                                           .world_size = 1 + below(w, RANKS),
                                           .max_restarts = below(w, 4) };
    for (int i = 0; i < AGENTS; i++)
        job->lacks |= chance(w, 8) ? 1u << i : 0;
    step(w, &(struct scheduler_event){ .kind = EV_JOB_SUBMITTED, .row = &job->row });
}

static void user_acts(struct world *w) {
    if (w->n_jobs == 0)
        return;
    struct sim_job *job = &w->jobs[1 + below(w, w->n_jobs)];
    struct scheduler_job_row row = job->row;
    struct scheduler_event ev = { .kind = chance(w, 2) ? EV_JOB_RETRY : EV_JOB_CANCEL, .job = row.job, .row = &row };
    step(w, &ev);
}

/* Usually for a job that has not ended, because few jobs have not. */
static void user_pauses(struct world *w, enum scheduler_event_kind ask) {
    int64_t job = w->n_jobs;
    for (int i = 0; i < 50 && (i == 0 || job_state_final(w->jobs[job].row.state)); i++)
        job = 1 + below(w, w->n_jobs);
    step(w, &(struct scheduler_event){ .kind = ask, .job = job });
}

static void drain_or_not(struct world *w, struct sim_agent *a, bool drained) {
    a->drained_now = drained && ((a->drained && a->drained_now) || chance(w, 2));
    a->drained = drained;
    step(w, &(struct scheduler_event){
                .kind = EV_EXECUTOR_DRAIN, .executor = a->id, .drain = { drained, a->drained_now, "new disk" } });
}

static void pass_time(struct world *w) {
    w->now += chance(w, 500) ? 12000 : below(w, 150); /* now and then the loop itself was stuck */
    for (int i = 0; i < AGENTS; i++) {
        struct sim_agent *a = &w->agents[i];
        if (a->connected)
            step(w, &(struct scheduler_event){ .kind = EV_EXECUTOR_SEEN, .executor = a->id, .last_seen_ms = w->now });
        if (!a->connected && w->now >= a->away_until) {
            if (!a->up)
                a->incarnation++;
            a->up = true;
            attach(w, a);
        }
    }
    step(w, &(struct scheduler_event){ .kind = EV_TICK });
}

static void finish_stopping(struct world *w) {
    for (int i = 0; i < AGENTS; i++)
        for (int p = 0; p < PARTS; p++) {
            struct sim_part *part = &w->agents[i].parts[p];
            if (part->used && part->stopping && !part->ended && chance(w, 6))
                end_part(w, &w->agents[i], part, RANK_END_STOPPED);
        }
}

static void store_records(struct world *w) {
    if (w->n_awaits == 0)
        return;
    int at = below(w, w->n_awaits);
    struct scheduler_action a = w->awaits[at];
    w->awaits[at] = w->awaits[--w->n_awaits];
    if (w->jobs[a.job].row.attempt == a.attempt)
        w->jobs[a.job].stored[a.rank] = true;
    step(w, &(struct scheduler_event){
                .kind = EV_RANK_STORED, .job = a.job, .attempt = a.attempt, .rank = a.rank, .sequence = a.sequence });
}

static void one_step(struct world *w, bool faults) {
    for (int i = 0; i < AGENTS; i++)
        obey(w, &w->agents[below(w, AGENTS)]);
    finish_stopping(w);
    store_records(w);
    if (chance(w, 3))
        pass_time(w);
    for (int i = 0; w->n_jobs && i < 4; i++)
        gang_ends(w, 1 + below(w, w->n_jobs), true);
    if (!faults) {
        user_pauses(w, EV_JOB_RESUME);
        return;
    }
    if (chance(w, 40))
        submit(w);
    if (w->n_jobs && chance(w, 12))
        gang_ends(w, 1 + below(w, w->n_jobs), false);
    if (chance(w, 150))
        kill_agent(w, &w->agents[below(w, AGENTS)]);
    if (chance(w, 300))
        leave(w, &w->agents[below(w, AGENTS)]);
    if (chance(w, 100))
        cut_stream(w, &w->agents[below(w, AGENTS)]);
    if (chance(w, 400))
        restart_controller(w);
    if (chance(w, 60))
        user_acts(w);
    if (w->n_jobs && chance(w, 40))
        user_pauses(w, chance(w, 2) ? EV_JOB_PAUSE : EV_JOB_RESUME);
    if (chance(w, 150))
        drain_or_not(w, &w->agents[below(w, AGENTS)], chance(w, 3));
}

static bool all_ended(const struct world *w) {
    for (int id = 1; id <= w->n_jobs; id++)
        if (!job_state_final(w->jobs[id].row.state))
            return false;
    return true;
}

static void run_world(uint64_t seed) {
    struct world *w = calloc(1, sizeof *w);
    assert_non_null(w);
    w->seed = w->random = seed;
    w->scheduler = scheduler_new(0);
    for (int i = 0; i < AGENTS; i++) {
        snprintf(w->agents[i].id, sizeof w->agents[i].id, "host-%d", i);
        w->agents[i].slots = 1 + i % 4;
        w->agents[i].incarnation = 1;
    }
    for (int i = 0; i < FAULT_STEPS; i++)
        one_step(w, true);
    /* One host never comes back; the others suffice. */
    kill_agent(w, &w->agents[0]);
    w->agents[0].away_until = INT64_MAX;
    for (int i = 0; i < AGENTS; i++)
        drain_or_not(w, &w->agents[i], false);
    int i = 0;
    for (; i < HEAL_STEPS && !all_ended(w); i++)
        one_step(w, false);
    REQUIRE(w, all_ended(w), "with healthy hosts not every job ended\n");
    REQUIRE(w, w->succeeded > 0 && w->failed > 0 && w->cancelled > 0, "a kind of end never happened\n");
    REQUIRE(w, w->moved > 0, "no job went on on another host than one that lacked something\n");
    REQUIRE(w, w->left > 0 && w->paused > 0, "no job ever left its hosts, or was paused\n");
    print_message("TRAINYARD_SEED=%llu: %d jobs, %d succeeded, %d failed, %d cancelled, %d pauses\n",
                  (unsigned long long)seed, w->n_jobs, w->succeeded, w->failed, w->cancelled, w->paused);
    scheduler_free(w->scheduler);
    free(w);
}

static void random_histories_keep_every_rule_and_every_job_ends(void **state) {
    (void)state;
    const char *seed = getenv("TRAINYARD_SEED");
    if (seed) {
        run_world(strtoull(seed, NULL, 10));
        return;
    }
    for (uint64_t s = 1; s <= 12; s++)
        run_world(s);
    run_world((uint64_t)time(NULL));
}

int main(void) {
    const struct CMUnitTest tests[] = { cmocka_unit_test(random_histories_keep_every_rule_and_every_job_ends) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
