/* Memory that runs out: an event is refused as a whole, and a job that is to be placed waits for the next event. */
#include "tests/refused_memory.h"
#include "tests/unit/scheduler_bench.h"

static struct scheduler_event submitted(const struct scheduler_job_row *row) {
    return (struct scheduler_event){ .kind = EV_JOB_SUBMITTED, .row = row };
}

/* What a new leader reads, then each kind of event that adds something, where there is no room to place a job. */
static status_t lead(struct scheduler *s, struct scheduler_actions *out, struct err *e) {
    static const char *const placement[] = { "a", "b" };
    const struct scheduler_job_row running = { .job = 1,
                                               .state = JOB_STATE_RUNNING,
                                               .world_size = 2,
                                               .attempt = 1,
                                               .placement = placement,
                                               .committed_step = -1 };
    const struct scheduler_job_row waiting = { .job = 2, .state = JOB_STATE_QUEUED, .world_size = 1 };
    const struct scheduler_job_row another = { .job = 3, .state = JOB_STATE_QUEUED, .world_size = 1 };
    const struct scheduler_job_row failed = { .job = 4, .state = JOB_STATE_FAILED, .world_size = 1, .attempt = 3 };
    const struct scheduler_part_report held[] = { { .job = 8, .attempt = 1 }, { .job = 9, .attempt = 1 } };
    const struct scheduler_event events[] = {
        submitted(&another),
        { .kind = EV_JOB_RETRY, .row = &failed },
        { .kind = EV_EXECUTOR_ATTACHED, .executor = "c", .attach = { .n_parts = 2, .parts = held } },
        { .kind = EV_COMMITTED, .job = 1, .attempt = 1, .step = 5 },
        { .kind = EV_JOB_CANCEL, .job = 3 },
        { .kind = EV_EXECUTOR_DRAIN, .executor = "lost", .drain = { .drained = true } },
        { .kind = EV_TICK },
    };
    if (!s)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no scheduler");
    TRY(scheduler_load_executor(s, "a", true, NULL, 0, e));
    TRY(scheduler_load(s, &running, 0, e));
    TRY(scheduler_load(s, &waiting, 0, e));
    for (size_t i = 0; i < sizeof events / sizeof *events; i++)
        TRY(scheduler_step(s, &events[i], 0, out, e));
    return ST_OK;
}

static status_t lead_and_end(void *ctx, struct err *e) {
    (void)ctx;
    struct scheduler_actions out = { 0 };
    struct scheduler *s = scheduler_new(0);
    const status_t st = lead(s, &out, e);
    scheduler_free(s);
    scheduler_actions_done(&out);
    return st;
}

static void each_allocation_that_is_refused_is_a_status_and_leaves_nothing_behind(void **state) {
    (void)state;
    assert_true(refuse_each_allocation("a scheduler's life", lead_and_end, NULL) > 20);
}

static void a_heartbeat_is_never_refused(void **state) {
    struct bench *b = *state;
    attach(b, "a", 1, 1, NULL);
    scheduler_actions_done(&b->out);
    refuse_allocation(0);
    tell(b, (struct scheduler_event){ .kind = EV_EXECUTOR_HEARD, .executor = "a", .heard_ms = 1000 });
    assert_false(allow_allocations());
}

static void a_job_without_memory_for_its_start_waits_and_starts_after_the_next_event(void **state) {
    struct bench *b = *state;
    int waited = 0;
    attach(b, "a", 1, 4, NULL);
    for (int n = 0;; n++) {
        const int64_t job = 10 + n;
        const struct scheduler_job_row row = { .job = job, .state = JOB_STATE_QUEUED, .world_size = 4 };
        const struct scheduler_event ev = submitted(&row);
        scheduler_actions_clear(&b->out);
        refuse_allocation(n);
        const status_t st = scheduler_step(b->s, &ev, b->now, &b->out, NULL);
        const bool refused = allow_allocations();
        if (st != ST_OK) {
            assert_null(find(b, ACT_ATTEMPT_CREATE));
            tell(b, ev);
        } else if (refused) {
            waited++;
            assert_int_equal(b->out.n, 0);
            assert_int_equal(scheduler_counts(b->s).queued, 1);
            tell(b, (struct scheduler_event){ .kind = EV_TICK });
        }
        assert_int_equal(find(b, ACT_ATTEMPT_CREATE)->job, job);
        assert_int_equal(scheduler_counts(b->s).used[SCHEDULER_SLOT_CPU], 4);
        if (!refused)
            break;
        tell(b, (struct scheduler_event){ .kind = EV_JOB_CANCEL, .job = job });
        end_part(b, "a", job, 1, 0, RANK_END_STOPPED, "");
        for (int r = 0; r < 4; r++)
            store(b, job, 1, r);
        assert_int_equal(scheduler_counts(b->s).jobs, 0);
    }
    assert_true(waited >= 5);
}

/* So many of each thing that an event can be about, told with a list of actions that has no room yet. */
enum { MANY = 200 };

static void told_with_no_room_yet(struct bench *b, const struct scheduler_event *ev, size_t least) {
    struct scheduler_actions out = { 0 };
    assert_int_equal(scheduler_step(b->s, ev, b->now, &out, NULL), ST_OK);
    assert_true(out.n >= least);
    scheduler_actions_done(&out);
}

static void there_is_room_for_all_that_follows_from_one_event(void **state) {
    struct bench *b = *state;
    struct scheduler_part_report foreign[MANY];
    char id[16];
    for (int i = 0; i < MANY; i++) {
        foreign[i] = (struct scheduler_part_report){ .job = 1000 + i, .attempt = 1 };
        load_row(b, &(struct scheduler_job_row){ .job = 2000 + i, .state = JOB_STATE_RUNNING, .world_size = 1 });
    }
    told_with_no_room_yet(b, &(struct scheduler_event){ .kind = EV_TICK }, MANY); /* all of them restart */
    for (int i = 0; i < MANY; i++) {
        snprintf(id, sizeof id, "lost-%d", i);
        load_executor(b, id, true, NULL);
    }
    for (int64_t end = b->now + LEASE_TTL_MS - SCHEDULER_TICK_MS; b->now < end;) {
        b->now += SCHEDULER_TICK_MS;
        tell(b, (struct scheduler_event){ .kind = EV_TICK });
    }
    b->now += SCHEDULER_TICK_MS;
    told_with_no_room_yet(b, &(struct scheduler_event){ .kind = EV_TICK }, MANY); /* all leases are over */
    told_with_no_room_yet(b,
                          &(struct scheduler_event){ .kind = EV_EXECUTOR_ATTACHED,
                                                     .executor = "a",
                                                     .attach = { .n_parts = MANY, .parts = foreign } },
                          MANY);
    submit(b, 1, 9, MANY, 0);
    attach(b, "wide", 1, MANY, NULL);
    assert_int_equal(scheduler_counts(b->s).used[SCHEDULER_SLOT_CPU], MANY);
    told_with_no_room_yet(
        b, &(struct scheduler_event){ .kind = EV_PART_ENDED, .executor = "wide", .job = 1, .attempt = 1 }, MANY);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_allocation_that_is_refused_is_a_status_and_leaves_nothing_behind),
        ON_BENCH(a_heartbeat_is_never_refused),
        ON_BENCH(a_job_without_memory_for_its_start_waits_and_starts_after_the_next_event),
        ON_BENCH(there_is_room_for_all_that_follows_from_one_event),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
