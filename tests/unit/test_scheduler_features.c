/* Jobs that need a feature which the agents of some executors lack: agents of an older release. */
#include "service/scheduler/explain.h"
#include "service/scheduler/feature.h"
#include "service/scheduler/state.h"
#include "tests/unit/scheduler_bench.h"

#define CODE SCHEDULER_FEATURE_CODE

static void attach_with(struct bench *b, const char *id, int64_t incarnation, int slots, uint32_t features) {
    struct scheduler_event ev = { .kind = EV_EXECUTOR_ATTACHED, .executor = id };
    ev.attach.incarnation = incarnation;
    ev.attach.slots[SCHEDULER_SLOT_CPU] = slots;
    ev.attach.features = features;
    tell(b, ev);
}

static void submit_needing(struct bench *b, int64_t job, int world_size, uint32_t needs) {
    const struct scheduler_job_row row = {
        .job = job, .state = JOB_STATE_QUEUED, .world_size = world_size, .needs = needs
    };
    tell(b, (struct scheduler_event){ .kind = EV_JOB_SUBMITTED, .row = &row });
}

static const struct scheduler_explanation *explain(const struct bench *b, int64_t job) {
    static struct scheduler_explanation x;
    scheduler_explain(b->s, job, b->now, &x);
    return &x;
}

static void names_are_read_back_and_others_are_no_feature(void **state) {
    (void)state;
    assert_int_equal(scheduler_feature_read("code"), CODE);
    assert_int_equal(scheduler_feature_read("python"), SCHEDULER_FEATURE_PYTHON);
    assert_int_equal(scheduler_feature_read("image"), SCHEDULER_FEATURE_IMAGE);
    assert_int_equal(scheduler_feature_read("images"), SCHEDULER_FEATURE_IMAGES);
    assert_int_equal(scheduler_feature_read("mixture"), SCHEDULER_FEATURE_MIXTURE);
    assert_int_equal(scheduler_feature_read("store_checkpoints"), SCHEDULER_FEATURE_STORE_CHECKPOINTS);
    assert_true(scheduler_feature_is_of_host(SCHEDULER_FEATURE_STORE_CHECKPOINTS));
    assert_int_equal(scheduler_feature_read("store_weights"), SCHEDULER_FEATURE_STORE_WEIGHTS);
    assert_int_equal(scheduler_feature_read("changed_data"), SCHEDULER_FEATURE_CHANGED_DATA);
    assert_int_equal(scheduler_feature_read("mixup"), SCHEDULER_FEATURE_MIXUP);
    assert_string_equal(scheduler_feature_name(CODE), "code");
    assert_int_equal(scheduler_feature_read("teleport"), 0);
    assert_int_equal(scheduler_feature_read(""), 0);
    assert_string_equal(scheduler_feature_name(1u << 31), "unknown");
}

static void a_job_gets_no_rank_on_an_older_executor_and_starts_when_that_is_upgraded(void **state) {
    struct bench *b = *state;
    attach_with(b, "old", 1, 2, 0);
    submit_needing(b, 1, 1, CODE);
    assert_null(find(b, ACT_ATTEMPT_CREATE));
    assert_string_equal(find(b, ACT_WAITING)->text,
                        "needs 1 cpu slot, more than the 0 of all attached executors; 2 more are on executors of an "
                        "older release, which lacks 'code': executor old");
    submit_needing(b, 2, 2, 0); /* the job that cannot run blocks no other */
    assert_int_equal(find(b, ACT_ATTEMPT_CREATE)->job, 2);
    attach_with(b, "new", 1, 1, CODE);
    assert_int_equal(find(b, ACT_ATTEMPT_CREATE)->job, 1);
    assert_string_equal(find(b, ACT_ATTEMPT_CREATE)->placement[0], "new");
    submit_needing(b, 3, 1, CODE);
    assert_null(find(b, ACT_ATTEMPT_CREATE));
    tell(b, (struct scheduler_event){ .kind = EV_JOB_CANCEL, .job = 2 });
    end_part(b, "old", 2, 1, 0, RANK_END_STOPPED, "");
    attach_with(b, "old", 2, 2, CODE); /* upgraded: another incarnation */
    assert_int_equal(find(b, ACT_ATTEMPT_CREATE)->job, 3);
}

static void a_gang_is_not_spread_over_an_older_executor(void **state) {
    struct bench *b = *state;
    attach_with(b, "old", 1, 4, 0);
    attach_with(b, "a", 1, 2, CODE);
    attach_with(b, "b", 1, 1, CODE);
    submit_needing(b, 1, 3, CODE);
    const struct scheduler_action *created = find(b, ACT_ATTEMPT_CREATE);
    for (int r = 0; r < 3; r++)
        assert_string_not_equal(created->placement[r], "old");
    submit_needing(b, 2, 4, CODE);
    assert_null(find(b, ACT_ATTEMPT_CREATE));
}

static void every_feature_is_needed(void **state) {
    struct bench *b = *state;
    attach_with(b, "one", 1, 1, CODE);
    submit_needing(b, 1, 1, CODE | 1u << 30);
    assert_null(find(b, ACT_ATTEMPT_CREATE));
    attach_with(b, "both", 1, 1, CODE | 1u << 30);
    assert_string_equal(find(b, ACT_ATTEMPT_CREATE)->placement[0], "both");
}

static void the_explanation_names_the_feature_and_the_executor_to_upgrade(void **state) {
    struct bench *b = *state;
    attach_with(b, "old", 1, 2, 0);
    submit_needing(b, 1, 1, CODE);
    const struct scheduler_explanation *x = explain(b, 1);
    assert_int_equal(x->n_reasons, 2);
    assert_int_equal(x->reasons[0].kind, SCHEDULER_WAIT_NO_SLOTS);
    assert_int_equal(x->reasons[1].kind, SCHEDULER_WAIT_LACKING);
    assert_string_equal(x->reasons[1].message, "2 cpu slots are on executors of an older release, which lacks 'code', "
                                               "executor old among them");
    assert_string_equal(x->reasons[1].remedy, "upgrade Trainyard on the host of executor old and restart its agent");
    assert_int_equal(x->slots, 0);
    assert_int_equal(x->hosts[0].availability, SCHEDULER_HOST_LACKS);
    assert_string_equal(x->hosts[0].reason, "code");
    assert_int_equal(x->hosts[0].free, 0);
}

static void the_explanation_sends_to_the_log_of_an_executor_whose_host_cannot_run_images(void **state) {
    struct bench *b = *state;
    attach_with(b, "bare", 1, 2, CODE);
    submit_needing(b, 1, 1, SCHEDULER_FEATURE_IMAGE);
    const struct scheduler_explanation *x = explain(b, 1);
    assert_string_equal(x->reasons[1].message,
                        "2 cpu slots are on executors that do not offer 'image', executor bare among them");
    assert_string_equal(x->reasons[1].remedy, "the log of executor bare says why (no_images); an agent of an "
                                              "older release must be upgraded");
}

static void a_host_that_lacks_a_feature_is_no_other_host_for_a_job_that_avoids_its_own(void **state) {
    struct bench *b = *state;
    attach_with(b, "new", 1, 1, CODE);
    submit_needing(b, 1, 1, CODE);
    attach_with(b, "old", 1, 1, 0);
    run_one(b, 1, 1);
    end_part(b, "new", 1, 1, 0, RANK_END_HOST_FAULT, "no file");
    store(b, 1, 1, 0);
    assert_int_equal(find(b, ACT_JOB_STATE)->to, JOB_STATE_FAILED); /* it does not wait for the older one */
}

static void a_drained_host_that_lacks_a_feature_is_no_other_host_either(void **state) {
    struct bench *b = *state;
    attach_with(b, "new", 1, 1, CODE);
    submit_needing(b, 1, 1, CODE);
    attach_with(b, "old", 1, 1, 0);
    tell(b, (struct scheduler_event){ .kind = EV_EXECUTOR_DRAIN, .executor = "old", .drain = { .drained = true } });
    run_one(b, 1, 1);
    end_part(b, "new", 1, 1, 0, RANK_END_HOST_FAULT, "no file");
    store(b, 1, 1, 0);
    assert_int_equal(find(b, ACT_JOB_STATE)->to, JOB_STATE_FAILED); /* to undrain it would not help */
}

static void an_older_executor_that_is_disconnected_is_not_waited_for(void **state) {
    struct bench *b = *state;
    attach_with(b, "old", 1, 2, 0);
    attach_with(b, "new", 1, 1, CODE);
    tell(b,
         (struct scheduler_event){ .kind = EV_EXECUTOR_DETACHED, .executor = "old", .attach = { .incarnation = 1 } });
    submit_needing(b, 1, 2, CODE);
    assert_null(find(b, ACT_ATTEMPT_CREATE));
    submit_needing(b, 2, 1, 0); /* behind a job that waited for it, this one would wait too */
    assert_int_equal(find(b, ACT_ATTEMPT_CREATE)->job, 2);
}

/* Time passes on an executor that stays attached: until an action follows, or for so long. */
static int64_t wait_attached(struct bench *b, const char *executor, int64_t ms) {
    const int64_t begin = b->now;
    while (b->now - begin < ms) {
        b->now += SCHEDULER_TICK_MS;
        tell(b, (struct scheduler_event){ .kind = EV_EXECUTOR_SEEN, .executor = executor, .last_seen_ms = b->now });
        tell(b, (struct scheduler_event){ .kind = EV_TICK });
        if (b->out.n > 0)
            break;
    }
    return b->now - begin;
}

static void a_job_whose_hosts_copy_its_data_may_take_a_day_to_start(void **state) {
    struct bench *b = *state;
    assert_int_equal(scheduler_feature_read("data"), SCHEDULER_FEATURE_DATA);
    attach_with(b, "host", 1, 2, SCHEDULER_FEATURE_DATA | SCHEDULER_FEATURE_STORE_WEIGHTS);
    submit_needing(b, 1, 1, SCHEDULER_FEATURE_DATA);
    assert_int_equal(find(b, ACT_ATTEMPT_CREATE)->job, 1);
    assert_int_equal(wait_attached(b, "host", 2 * SCHEDULER_START_DATA_TIMEOUT_MS), SCHEDULER_START_DATA_TIMEOUT_MS);
    const struct job weights = { .needs = SCHEDULER_FEATURE_STORE_WEIGHTS }, none = { 0 };
    assert_int_equal(attempt_start_limit_ms(&weights), SCHEDULER_START_DATA_TIMEOUT_MS);
    assert_int_equal(attempt_start_limit_ms(&none), SCHEDULER_START_TIMEOUT_MS);
    assert_int_equal(find(b, ACT_JOB_STATE)->job, 1);
    assert_non_null(strstr(find(b, ACT_JOB_STATE)->text, "did not join within 86400 s"));
    submit_needing(b, 2, 1, 0);
    assert_int_equal(find(b, ACT_ATTEMPT_CREATE)->job, 2);
    for (int64_t waited = 0; waited < SCHEDULER_START_TIMEOUT_MS;) {
        waited += wait_attached(b, "host", SCHEDULER_START_TIMEOUT_MS - waited);
        if (find(b, ACT_JOB_STATE) && find(b, ACT_JOB_STATE)->job == 2)
            break;
    }
    assert_non_null(find(b, ACT_JOB_STATE));
    assert_non_null(strstr(find(b, ACT_JOB_STATE)->text, "did not join within 600 s"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_read_back_and_others_are_no_feature),
        ON_BENCH(a_job_gets_no_rank_on_an_older_executor_and_starts_when_that_is_upgraded),
        ON_BENCH(a_gang_is_not_spread_over_an_older_executor),
        ON_BENCH(every_feature_is_needed),
        ON_BENCH(the_explanation_names_the_feature_and_the_executor_to_upgrade),
        ON_BENCH(the_explanation_sends_to_the_log_of_an_executor_whose_host_cannot_run_images),
        ON_BENCH(a_host_that_lacks_a_feature_is_no_other_host_for_a_job_that_avoids_its_own),
        ON_BENCH(a_drained_host_that_lacks_a_feature_is_no_other_host_either),
        ON_BENCH(an_older_executor_that_is_disconnected_is_not_waited_for),
        ON_BENCH(a_job_whose_hosts_copy_its_data_may_take_a_day_to_start),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
