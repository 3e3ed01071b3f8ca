/* ExplainJob and ListQueues as a client sees them: the scheduler's explanation, and the details that the rows add. */
#include "service/rpc/explain.h"
#include "tests/rpc/service_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <trainyard/v1/queue.pb-c.h>

#define STATE(s)   TRAINYARD__V1__JOB__STATE__##s
#define KIND(k)    TRAINYARD__V1__WAIT_REASON__KIND__##k
#define VERDICT(v) TRAINYARD__V1__EXECUTOR_VERDICT__VERDICT__##v

typedef Trainyard__V1__ExplainJobResponse Explanation;

static Explanation *explain(struct service_fixture *y, int64_t job) {
    char name[40];
    snprintf(name, sizeof name, "jobs/%lld", (long long)job);
    Trainyard__V1__ExplainJobRequest request = TRAINYARD__V1__EXPLAIN_JOB_REQUEST__INIT;
    request.name = name;
    ProtobufCMessage *reply;
    OK(service_call(y, "ExplainJob", &request.base, &reply, &e));
    assert_string_equal(((Explanation *)reply)->name, name);
    return (Explanation *)reply;
}

static void done(Explanation *x) { trainyard__v1__explain_job_response__free_unpacked(x, NULL); }

static void fails(struct service_fixture *y, const char *name, int64_t time_ms, status_t status, const char *reason,
                  const char *text) {
    Trainyard__V1__ExplainJobRequest request = TRAINYARD__V1__EXPLAIN_JOB_REQUEST__INIT;
    char told[RPC_REASON_BYTES];
    ProtobufCMessage *reply = NULL;
    request.name = (char *)name;
    FAILS(rpc_call_unary_reason(y->channel, &trainyard__v1__job_service__descriptor, "ExplainJob", &request.base,
                                time_ms, &reply, told, &e),
          status, text);
    if (reason)
        assert_string_equal(told, reason);
}

static int64_t submit_to(struct service_fixture *y, const char *queue, int priority, int ranks, bool cuda) {
    Trainyard__V1__ResourcesSpec resources = TRAINYARD__V1__RESOURCES_SPEC__INIT;
    Trainyard__V1__CreateJobRequest request = TRAINYARD__V1__CREATE_JOB_REQUEST__INIT;
    request.wait_for_hosts = true;
    request.spec = service_spec(ranks, 0);
    request.spec->_queue_case = TRAINYARD__V1__JOB_SPEC___QUEUE_QUEUE;
    request.spec->queue = (char *)queue;
    request.spec->priority = priority;
    resources._accelerator_case = TRAINYARD__V1__RESOURCES_SPEC___ACCELERATOR_ACCELERATOR;
    resources.accelerator = cuda ? "cuda" : "cpu";
    request.spec->resources = &resources;
    ProtobufCMessage *reply;
    OK(service_call(y, "CreateJob", &request.base, &reply, &e));
    int64_t job = atoll(((Trainyard__V1__Job *)reply)->name + strlen("jobs/"));
    protobuf_c_message_free_unpacked(reply, NULL);
    return job;
}

static void the_numbers_of_reasons_and_verdicts_are_the_schedulers(void **state) {
    (void)state;
    static const char *const kinds[] = { [SCHEDULER_WAIT_NOTHING] = "NOTHING",
                                         [SCHEDULER_WAIT_BACKOFF] = "BACKOFF",
                                         [SCHEDULER_WAIT_ENDING] = "ENDING",
                                         [SCHEDULER_WAIT_GATHERING] = "GATHERING",
                                         [SCHEDULER_WAIT_NO_EXECUTOR] = "NO_EXECUTOR",
                                         [SCHEDULER_WAIT_NO_SLOTS] = "NO_SLOTS",
                                         [SCHEDULER_WAIT_TOO_WIDE] = "TOO_WIDE",
                                         [SCHEDULER_WAIT_DETACHED] = "AWAY",
                                         [SCHEDULER_WAIT_QUARANTINED] = "QUARANTINED",
                                         [SCHEDULER_WAIT_SINGLE_RANK] = "LONE",
                                         [SCHEDULER_WAIT_ORDER] = "ORDER",
                                         [SCHEDULER_WAIT_BUSY] = "BUSY",
                                         [SCHEDULER_WAIT_FENCED] = "HELD",
                                         [SCHEDULER_WAIT_ORIGIN_GONE] = "ORIGIN_GONE",
                                         [SCHEDULER_WAIT_DRAINED] = "DRAINED",
                                         [SCHEDULER_WAIT_PAUSED] = "PAUSED",
                                         [SCHEDULER_WAIT_AVOIDED] = "AVOIDED",
                                         [SCHEDULER_WAIT_CHECKPOINT] = "CHECKPOINT",
                                         [SCHEDULER_WAIT_LACKING] = "LACKING",
                                         [SCHEDULER_WAIT_QUOTA] = "QUOTA",
                                         [SCHEDULER_WAIT_USER] = "USER" };
    static const char *const verdicts[] = { [SCHEDULER_HOST_TAKES] = "TAKES",     [SCHEDULER_HOST_FULL] = "FULL",
                                            [SCHEDULER_HOST_FENCED] = "HELD",     [SCHEDULER_HOST_SINGLE_RANK] = "LONE",
                                            [SCHEDULER_HOST_DRAINED] = "DRAINED", [SCHEDULER_HOST_WITHOUT] = "WITHOUT",
                                            [SCHEDULER_HOST_DETACHED] = "AWAY",   [SCHEDULER_HOST_AVOIDED] = "AVOIDED",
                                            [SCHEDULER_HOST_LACKS] = "LACKS" };
    const ProtobufCEnumDescriptor *d = &trainyard__v1__wait_reason__kind__descriptor;
    assert_int_equal(d->n_values, sizeof kinds / sizeof *kinds);
    for (int i = 1; i < (int)d->n_values; i++)
        assert_string_equal(protobuf_c_enum_descriptor_get_value(d, i)->name, kinds[i]);
    d = &trainyard__v1__executor_verdict__verdict__descriptor;
    assert_int_equal(sizeof verdicts / sizeof *verdicts, SCHEDULER_HOST_STATES);
    for (int i = 0; i < SCHEDULER_HOST_STATES; i++)
        assert_string_equal(protobuf_c_enum_descriptor_get_value(d, i < SCHEDULER_HOST_AVOIDED ? i + 1 : i + 2)->name,
                            verdicts[i]);
}

static void an_end_is_estimated_by_the_steps_of_this_attempt_and_only_once_there_are_some(void **state) {
    (void)state;
    assert_int_equal(explain_end_estimate_us(1000, 2000, 0, 0, 10), 0);
    assert_int_equal(explain_end_estimate_us(0, 2000, 0, 5, 10), 0);
    assert_int_equal(explain_end_estimate_us(1000, 2000, 0, 5, 10), 3000);
    assert_int_equal(explain_end_estimate_us(1000, 2000, 5, 6, 10), 6000);
    assert_int_equal(explain_end_estimate_us(1000, 2000, 5, 10, 10), 2000);
}

static void a_start_is_estimated_when_enough_holders_end_and_not_by_those_of_which_nothing_is_known(void **state) {
    (void)state;
    struct explain_slots holders[] = { { 300, 2 }, { 0, 8 }, { 100, 1 }, { 200, 1 } };
    assert_int_equal(explain_start_estimate_us(holders, 4, false, 1), 100);
    assert_int_equal(explain_start_estimate_us(holders, 4, false, 2), 200);
    assert_int_equal(explain_start_estimate_us(holders, 4, false, 3), 300);
    assert_int_equal(explain_start_estimate_us(holders, 4, false, 4), 300);
    assert_int_equal(explain_start_estimate_us(holders, 4, false, 5), 0);
    assert_int_equal(explain_start_estimate_us(holders, 0, false, 1), 0);
    assert_int_equal(explain_start_estimate_us(holders, 4, true, 1), 0); /* one that is not listed may end first */
}

static void a_job_wider_than_its_executors_lists_what_it_lacks_and_the_lost_executors(void **state) {
    struct service_fixture *y = *state;
    pg_run(y->conninfo, "INSERT INTO executor SELECT 'gone' || n, 1, 2, 'h', 'a', 'v', 8, 'no heartbeat for 10 s', "
                        "now(), now(), now() + n * interval '1 second' FROM generate_series(100, 140) n");
    int64_t job = service_submit(y, 4, 0);
    Explanation *x = explain(y, job);
    assert_int_equal(x->state, STATE(QUEUED));
    assert_int_equal(x->reasons[0]->kind, KIND(NO_EXECUTOR));
    done(x);
    struct agent *a = agent_new(y, "host-a", 1, 2);
    agent_attach_alive(a);
    x = explain(y, job);
    assert_int_equal(x->n_reasons, 1);
    assert_int_equal(x->reasons[0]->kind, KIND(TOO_WIDE));
    assert_string_equal(x->reasons[0]->message, "needs 4 cpu slots, more than the 2 of all attached executors");
    assert_string_equal(x->accelerator, "cpu");
    assert_int_equal(x->slots, 4);
    assert_int_equal(x->slots_attached, 2);
    assert_int_equal(x->slots_free, 2);
    assert_int_equal(x->position, 1);
    assert_int_equal(x->waiting, 1);
    assert_int_equal(x->n_executors, SCHEDULER_LISTED);
    assert_int_equal(x->executors_omitted, 41 + 1 - SCHEDULER_LISTED);
    assert_string_equal(x->executors[0]->executor, "executors/host-a");
    assert_int_equal(x->executors[0]->verdict, VERDICT(TAKES));
    assert_string_equal(x->executors[0]->message, "2 of 2 slots are free");
    assert_string_equal(x->executors[0]->hostname, "test");
    assert_int_equal(x->executors[1]->verdict, VERDICT(LOST));
    assert_string_equal(x->executors[1]->message, "no heartbeat for 10 s");
    assert_string_equal(x->executors[1]->executor, "executors/gone140"); /* the last to be lost */
    assert_string_equal(x->executors[2]->executor, "executors/gone139");
    done(x);
    agent_free(a);
}

static void a_job_behind_others_lists_the_jobs_before_it_and_the_holders_of_slots(void **state) {
    struct service_fixture *y = *state;
    struct agent *a = agent_new(y, "host-a", 1, 1);
    agent_attach_alive(a);
    int64_t first = service_submit(y, 1, 0);
    service_run(y, &a, 1, first, 1);
    int64_t second = submit_to(y, "urgent", 7, 1, false), third = submit_to(y, "default", 0, 1, false);
    Explanation *x = explain(y, third);
    assert_int_equal(x->n_reasons, 2);
    assert_int_equal(x->reasons[0]->kind, KIND(ORDER));
    char expected[200];
    snprintf(
        expected, sizeof expected,
        "waits behind job %lld (priority 7), which needs 1 cpu slot, 0 of 1 are free; it is in queue 'urgent', and "
        "the higher priority is first",
        (long long)second);
    assert_string_equal(x->reasons[0]->message, expected);
    assert_int_equal(x->reasons[1]->kind, KIND(BUSY));
    assert_int_equal(x->position, 2);
    assert_int_equal(x->waiting, 2);
    assert_int_equal(x->n_holders, 1);
    assert_string_equal(x->holders[0]->job, "jobs/1");
    assert_string_equal(x->holders[0]->display_name, "test");
    assert_int_equal(x->holders[0]->state, STATE(RUNNING));
    assert_int_equal(x->holders[0]->slots, 1);
    assert_int_equal(x->holders[0]->steps, 10);
    assert_null(x->holders[0]->end_estimate);
    assert_null(x->start_estimate);
    const int64_t created = pg_number(y->conninfo, "SELECT extract(epoch FROM create_time)::int8 FROM attempt");
    assert_in_range(x->holders[0]->since->seconds, created - 1, created + 1);
    assert_int_equal(x->executors[0]->verdict, VERDICT(FULL));
    done(x);

    pg_force(y->conninfo, "UPDATE job SET step = 5 WHERE id = 1; "
                          "UPDATE attempt SET create_time = now() - interval '200 s', "
                          "start_time = now() - interval '100 s'");
    x = explain(y, second);
    assert_int_equal(x->reasons[0]->kind, KIND(BUSY));
    assert_int_equal(x->position, 1);
    assert_int_equal(x->holders[0]->step, 5);
    const int64_t now = clock_wall_us() / 1000000;
    assert_in_range(x->holders[0]->since->seconds, now - 260, now - 200);
    assert_in_range(x->holders[0]->end_estimate->seconds, now, now + 160);
    assert_int_equal(x->start_estimate->seconds, x->holders[0]->end_estimate->seconds);
    done(x);
    x = explain(y, third);
    assert_non_null(x->holders[0]->end_estimate);
    assert_null(x->start_estimate); /* another job is before it */
    done(x);

    x = explain(y, first); /* the job runs: the summary names its step */
    assert_int_equal(x->state, STATE(RUNNING));
    assert_int_equal(x->n_reasons, 0);
    assert_int_equal(x->n_executors, 0);
    assert_int_equal(x->position, 0);
    assert_string_equal(x->summary, "attempt 1 runs: 1 rank on 1 executor, step 5 of 10");
    done(x);
    agent_free(a);
}

static void a_job_for_gpus_lists_what_each_executor_reports_as_missing(void **state) {
    struct service_fixture *y = *state;
    int64_t job = submit_to(y, "default", 0, 1, true);
    struct agent *a = agent_new(y, "host-a", 1, 2), *b = agent_new(y, "host-b", 1, 2);
    agent_attach_alive(a);
    agent_attach_alive(b);
    pg_run(y->conninfo,
           "UPDATE executor SET reason = 'no NVIDIA driver: libcuda.so.1 is not there' WHERE id = 'host-b'");
    Explanation *x = explain(y, job);
    assert_int_equal(x->n_reasons, 1);
    assert_int_equal(x->reasons[0]->kind, KIND(NO_SLOTS));
    assert_string_equal(x->accelerator, "cuda");
    assert_int_equal(x->n_executors, 2);
    assert_int_equal(x->executors[0]->verdict, VERDICT(WITHOUT));
    assert_string_equal(x->executors[0]->message, "it has no CUDA devices");
    assert_string_equal(x->executors[1]->message, "no NVIDIA driver: libcuda.so.1 is not there");
    done(x);
    pg_run(y->conninfo,
           "INSERT INTO device (executor, position, kind, index, model, memory_bytes, quarantined, reason) VALUES "
           "('host-b', 1, 'cuda', 0, 'm', 1, true, 'Xid 79'), ('host-b', 2, 'cuda', 1, 'm', 1, true, 'Xid 48')");
    x = explain(y, job);
    assert_string_equal(x->executors[1]->message, "no NVIDIA driver: libcuda.so.1 is not there; cuda device 0 is "
                                                  "quarantined, as are others: Xid 79");
    done(x);
    agent_free(a);
    agent_free(b);
}

/* The delay doubles with each failure. The loop ends when the test sees the job during a delay. */
static void a_job_in_backoff_names_its_next_attempt_and_its_last_failure(void **state) {
    struct service_fixture *y = *state;
    int64_t job = service_submit(y, 1, 50);
    bool seen = false;
    for (int attempt = 1; !seen && attempt < 10; attempt++) {
        struct agent *a = agent_new(y, "host-a", attempt, 1); /* a new start: its lease is fresh */
        agent_attach_alive(a);
        service_run(y, &a, 1, job, attempt);
        agent_say_ended(a, job, attempt, 0, TRAINYARD__V1__WORKER_END__CAUSE__INTERNAL, 0);
        agent_expect(a, TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_STOP);
        agent_expect(a, TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_ACKNOWLEDGED);
        Explanation *x = explain(y, job);
        seen = x->n_reasons > 0 && x->reasons[0]->kind == KIND(BACKOFF);
        if (seen) {
            char expected[80];
            assert_int_equal(x->state, STATE(RESTARTING));
            assert_true(x->reasons[0]->until->seconds >= clock_wall_us() / 1000000 - 60);
            snprintf(expected, sizeof expected, "; attempt %d ended: rank 0: died in a test", attempt);
            assert_non_null(strstr(x->reasons[0]->message, expected));
            assert_non_null(strstr(x->reasons[0]->remedy, "it begins then"));
        }
        done(x);
        agent_free(a);
    }
    assert_true(seen);
}

static int64_t fork_first(struct service_fixture *y, int ranks) {
    Trainyard__V1__CreateJobRequest request = TRAINYARD__V1__CREATE_JOB_REQUEST__INIT;
    request.wait_for_hosts = true;
    request.spec = service_spec(ranks, 0);
    request.spec->train->steps = 20;
    request.fork = "1";
    ProtobufCMessage *reply;
    OK(service_call(y, "CreateJob", &request.base, &reply, &e));
    int64_t job = atoll(((Trainyard__V1__Job *)reply)->name + strlen("jobs/"));
    protobuf_c_message_free_unpacked(reply, NULL);
    return job;
}

static void a_missing_origin_is_the_first_reason_of_a_fork(void **state) {
    struct service_fixture *y = *state;
    struct agent *a = agent_new(y, "host-a", 1, 1);
    agent_attach_alive(a);
    int64_t parent = service_submit(y, 1, 0);
    service_run(y, &a, 1, parent, 1);
    service_finish(&a, 1, parent, 1);
    service_await_state(y, parent, STATE(SUCCEEDED));
    int64_t waits = fork_first(y, 4), starts = fork_first(y, 1);
    agent_expect(a, TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_START);
    Explanation *x = explain(y, waits);
    assert_int_equal(x->n_reasons, 1);
    assert_int_equal(x->reasons[0]->kind, KIND(TOO_WIDE));
    done(x);
    pg_force(y->conninfo, "UPDATE checkpoint SET state = 3, reason = 'a digest differs'");
    x = explain(y, waits);
    assert_int_equal(x->n_reasons, 2);
    assert_int_equal(x->reasons[0]->kind, KIND(ORIGIN_GONE));
    assert_string_equal(x->reasons[0]->message, "jobs/2 has nothing to resume from: jobs/1/checkpoints/1, which it "
                                                "began with, is corrupt, and it has no checkpoint of its own");
    assert_int_equal(x->reasons[1]->kind, KIND(TOO_WIDE));
    done(x);
    x = explain(y, starts); /* the attempt has begun with it */
    assert_int_equal(x->n_reasons, 1);
    assert_int_equal(x->reasons[0]->kind, KIND(GATHERING));
    done(x);
    x = explain(y, parent);
    assert_int_equal(x->state, STATE(SUCCEEDED));
    assert_int_equal(x->n_reasons, 0);
    assert_string_equal(x->summary, "has ended after its 10 steps");
    done(x);
    agent_free(a);
}

static void ended_and_unknown_jobs_are_explained(void **state) {
    struct service_fixture *y = *state;
    int64_t job = service_submit(y, 1, 0);
    fails(y, "jobs/99", FIXTURE_PATIENCE_MS, ST_NOT_FOUND, "JOB_NOT_FOUND", "jobs/99 does not exist");
    fails(y, "ninety", FIXTURE_PATIENCE_MS, ST_INVALID_ARGUMENT, NULL, "ninety");
    Trainyard__V1__CancelJobRequest cancel = TRAINYARD__V1__CANCEL_JOB_REQUEST__INIT;
    cancel.name = "1";
    ProtobufCMessage *reply;
    OK(service_call(y, "CancelJob", &cancel.base, &reply, &e));
    protobuf_c_message_free_unpacked(reply, NULL);
    Explanation *x = explain(y, job);
    assert_int_equal(x->state, STATE(CANCELLED));
    assert_int_equal(x->n_reasons, 0);
    assert_string_equal(x->summary, "has ended at step 0 of 10: cancelled while it was queued");
    done(x);
    pg_force(y->conninfo, "UPDATE job SET state = 1, end_time = NULL"); /* like a job whose COMMIT had no answer */
    x = explain(y, job);
    assert_int_equal(x->state, STATE(QUEUED));
    assert_int_equal(x->n_reasons, 1);
    assert_int_equal(x->reasons[0]->kind, KIND(NOTHING));
    assert_string_equal(x->summary, "waits for the scheduler to take it up");
    done(x);
    pg_force(y->conninfo, "UPDATE job SET state = 10, end_time = now(), reason = 'rank 0: broke'");
    x = explain(y, job);
    assert_string_equal(x->summary, "has ended at step 0 of 10: rank 0: broke; 'trainyard retry 1' continues it");
    done(x);
}

static void while_the_loop_waits_for_the_database_explain_returns_an_error(void **state) {
    struct service_fixture *y = *state;
    int64_t job = service_submit(y, 1, 0);
    done(explain(y, job)); /* the reason is written by then */
    struct agent *a = agent_new(y, "host-a", 1, 1);
    struct pg_open *open = pg_begin(y->conninfo, "SELECT 1 FROM job FOR UPDATE");
    agent_attach_alive(a); /* the job is placed: its row cannot be written */
    pg_await_blocked(y->pg, y->conninfo, 1);
    fails(y, "jobs/1", 1000, ST_DEADLINE_EXCEEDED, NULL, "");
    pg_commit(open);
    service_await_state(y, job, STATE(STARTING));
    Explanation *x = explain(y, job);
    assert_int_equal(x->reasons[0]->kind, KIND(GATHERING));
    done(x);
    agent_free(a);
}

static Trainyard__V1__ListQueuesResponse *queues(struct service_fixture *y, int page_size, const char *token) {
    Trainyard__V1__ListQueuesRequest request = TRAINYARD__V1__LIST_QUEUES_REQUEST__INIT;
    request.page_size = page_size;
    request.page_token = (char *)token;
    ProtobufCMessage *reply;
    OK(rpc_call_unary(y->channel, &trainyard__v1__queue_service__descriptor, "ListQueues", &request.base,
                      FIXTURE_PATIENCE_MS, &reply, &e));
    return (Trainyard__V1__ListQueuesResponse *)reply;
}

static void queues_count_what_waits_and_runs_and_are_listed_in_pages_by_name(void **state) {
    struct service_fixture *y = *state;
    Trainyard__V1__ListQueuesResponse *all = queues(y, 0, "");
    assert_int_equal(all->n_queues, 0);
    protobuf_c_message_free_unpacked(&all->base, NULL);
    struct agent *a = agent_new(y, "host-a", 1, 1);
    agent_attach_alive(a);
    int64_t running = submit_to(y, "night", 0, 1, false);
    service_run(y, &a, 1, running, 1);
    int64_t oldest = submit_to(y, "day", 0, 1, false);
    submit_to(y, "day", 5, 4, true);
    int64_t ended = submit_to(y, "ended", 0, 1, false), paused = submit_to(y, "night", 0, 4, false);
    char sql[200];
    snprintf(sql, sizeof sql,
             "UPDATE job SET state = 11, end_time = now() WHERE id = %lld; UPDATE job SET state = 7 "
             "WHERE id = %lld",
             (long long)ended, (long long)paused);
    pg_force(y->conninfo, sql);
    all = queues(y, 1, "");
    assert_int_equal(all->n_queues, 1);
    const Trainyard__V1__Queue *q = all->queues[0];
    assert_string_equal(q->name, "day");
    assert_int_equal(q->waiting, 2);
    assert_int_equal(q->running, 0);
    assert_int_equal(q->cpu_slots_used, 0);
    assert_int_equal(q->cpu_slots_wanted, 1);
    assert_int_equal(q->cuda_slots_wanted, 4);
    char name[40];
    snprintf(name, sizeof name, "jobs/%lld", (long long)oldest);
    assert_string_equal(q->oldest_waiting, name);
    const int64_t now = clock_wall_us() / 1000000;
    assert_in_range(q->oldest_waiting_time->seconds, now - 120, now + 1);
    assert_string_equal(all->next_page_token, "day");
    Trainyard__V1__ListQueuesResponse *rest = queues(y, 0, all->next_page_token);
    assert_int_equal(rest->n_queues, 1);
    q = rest->queues[0];
    assert_string_equal(q->name, "night");
    assert_int_equal(q->waiting, 0);
    assert_int_equal(q->running, 1);
    assert_int_equal(q->paused, 1);
    assert_int_equal(q->cpu_slots_used, 1);
    assert_int_equal(q->cuda_slots_used, 0);
    assert_string_equal(q->oldest_waiting, "");
    assert_null(q->oldest_waiting_time);
    assert_string_equal(rest->next_page_token, "");
    protobuf_c_message_free_unpacked(&rest->base, NULL);
    protobuf_c_message_free_unpacked(&all->base, NULL);
    agent_free(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_numbers_of_reasons_and_verdicts_are_the_schedulers),
        cmocka_unit_test(an_end_is_estimated_by_the_steps_of_this_attempt_and_only_once_there_are_some),
        cmocka_unit_test(a_start_is_estimated_when_enough_holders_end_and_not_by_those_of_which_nothing_is_known),
        FIXTURE_TEST(a_job_wider_than_its_executors_lists_what_it_lacks_and_the_lost_executors),
        FIXTURE_TEST(a_job_behind_others_lists_the_jobs_before_it_and_the_holders_of_slots),
        FIXTURE_TEST(a_job_for_gpus_lists_what_each_executor_reports_as_missing),
        FIXTURE_TEST(a_job_in_backoff_names_its_next_attempt_and_its_last_failure),
        FIXTURE_TEST(a_missing_origin_is_the_first_reason_of_a_fork),
        FIXTURE_TEST(ended_and_unknown_jobs_are_explained),
        FIXTURE_TEST(while_the_loop_waits_for_the_database_explain_returns_an_error),
        FIXTURE_TEST(queues_count_what_waits_and_runs_and_are_listed_in_pages_by_name),
    };
    return cmocka_run_group_tests_name("explain", tests, service_group_setup, service_group_teardown);
}
