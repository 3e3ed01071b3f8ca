/* A scheduler without a controller: `tell` passes it one event, and `out` holds the actions that it returns. */
#ifndef TESTS_UNIT_SCHEDULER_BENCH_H
#define TESTS_UNIT_SCHEDULER_BENCH_H

#include "base/limits.h"
#include "service/scheduler/scheduler.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

struct bench {
    struct scheduler *s;
    struct scheduler_actions out;
    int64_t now;
};

static inline int setup(void **state) {
    static struct bench b;
    b = (struct bench){ .s = scheduler_new(0) };
    *state = &b;
    return 0;
}

static inline int teardown(void **state) {
    struct bench *b = *state;
    scheduler_free(b->s);
    scheduler_actions_done(&b->out);
    return 0;
}

static inline void tell(struct bench *b, struct scheduler_event ev) {
    scheduler_actions_clear(&b->out);
    scheduler_step(b->s, &ev, b->now, &b->out);
}

static inline void load_row(struct bench *b, const struct scheduler_job_row *row) { scheduler_load(b->s, row, b->now); }

static inline void load_executor(struct bench *b, const char *id, bool attached, const struct scheduler_drain *drain) {
    scheduler_load_executor(b->s, id, attached, drain, b->now);
}

static inline const struct scheduler_action *find(const struct bench *b, enum scheduler_action_kind kind) {
    for (size_t i = 0; i < b->out.n; i++)
        if (b->out.items[i].kind == kind)
            return &b->out.items[i];
    return NULL;
}

static inline void submit(struct bench *b, int64_t job, int priority, int world_size, int max_restarts) {
    struct scheduler_job_row row = { .job = job,
                                     .state = JOB_STATE_QUEUED,
                                     .priority = priority,
                                     .world_size = world_size,
                                     .max_restarts = max_restarts };
    tell(b, (struct scheduler_event){ .kind = EV_JOB_SUBMITTED, .row = &row });
}

static inline void attach(struct bench *b, const char *id, int64_t incarnation, int slots,
                          const struct scheduler_part_report *part) {
    struct scheduler_event ev = { .kind = EV_EXECUTOR_ATTACHED, .executor = id };
    ev.attach.incarnation = incarnation;
    ev.attach.slots[SCHEDULER_SLOT_CPU] = slots;
    ev.attach.parts = part;
    ev.attach.n_parts = part ? 1 : 0;
    tell(b, ev);
}

static inline void run_one(struct bench *b, int64_t job, int attempt) {
    tell(b, (struct scheduler_event){ .kind = EV_RANK_OFFERED, .job = job, .attempt = attempt });
    tell(b, (struct scheduler_event){ .kind = EV_RANK_JOINED, .job = job, .attempt = attempt });
}

static inline void end_part(struct bench *b, const char *executor, int64_t job, int attempt, int rank,
                            enum rank_end_cause cause, const char *why) {
    struct rank_end end = { .rank = rank, .cause = cause };
    snprintf(end.message, sizeof end.message, "%s", why);
    tell(b,
         (struct scheduler_event){
             .kind = EV_PART_ENDED, .executor = executor, .job = job, .attempt = attempt, .ends = &end, .n_ends = 1 });
}

static inline void store(struct bench *b, int64_t job, int attempt, int rank) {
    tell(b, (struct scheduler_event){ .kind = EV_RANK_STORED, .job = job, .attempt = attempt, .rank = rank });
}

static inline void every_tick_for(struct bench *b, int64_t ms) {
    for (int64_t end = b->now + ms; b->now < end;) {
        b->now += SCHEDULER_TICK_MS;
        tell(b, (struct scheduler_event){ .kind = EV_TICK });
        if (b->out.n > 0)
            return;
    }
}

#define ON_BENCH(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

#endif
