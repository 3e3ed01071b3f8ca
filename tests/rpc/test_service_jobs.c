/* The life of a job, as clients and agents see it: create, run, restart, retry, cancel, list and watch. */
#include "tests/rpc/service_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define STATE(s) TRAINYARD__V1__JOB__STATE__##s

static void a_gang_goes_from_submit_to_success(void **state) {
    struct service_fixture *y = *state;
    struct agent *agents[] = { agent_new(y, "host-a", 1, 1), agent_new(y, "host-b", 1, 1) };
    agent_attach(agents[0], NULL);
    agent_attach(agents[1], NULL);
    int64_t job = service_submit(y, 2, 0);
    service_run(y, agents, 2, job, 1);
    service_finish(agents, 2, job, 1);
    service_await_state(y, job, STATE(SUCCEEDED));
    service_assert_job(y, job, STATE(SUCCEEDED), 1, 0);
    agent_free(agents[0]);
    agent_free(agents[1]);
}

static void a_job_is_not_done_before_its_last_record_is_stored(void **state) {
    struct service_fixture *y = *state;
    struct agent *a = agent_new(y, "host-a", 1, 1);
    agent_attach(a, NULL);
    int64_t job = service_submit(y, 1, 0);
    service_run(y, &a, 1, job, 1);
    agent_say_ended(a, job, 1, 0, TRAINYARD__V1__WORKER_END__CAUSE__FINISHED, 3);
    service_assert_job(y, job, STATE(RUNNING), 1, 0);
    assert_true(agent_idle(a));
    agent_report_end(a, job, 1, 0, 1);
    service_await_state(y, job, STATE(SUCCEEDED));
    agent_free(a);
}

static void a_dead_worker_costs_one_restart_and_the_last_one_fails_the_job(void **state) {
    struct service_fixture *y = *state;
    struct agent *a = agent_new(y, "host-a", 1, 1);
    agent_attach(a, NULL);
    int64_t job = service_submit(y, 1, 1);
    service_run(y, &a, 1, job, 1);
    agent_say_ended(a, job, 1, 0, TRAINYARD__V1__WORKER_END__CAUSE__INTERNAL, 0);
    agent_expect(a, TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_STOP);
    agent_expect(a, TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_ACKNOWLEDGED);
    service_run(y, &a, 1, job, 2);
    service_assert_job(y, job, STATE(RUNNING), 2, 1);
    agent_say_ended(a, job, 2, 0, TRAINYARD__V1__WORKER_END__CAUSE__INTERNAL, 0);
    service_await_state(y, job, STATE(FAILED));
    Trainyard__V1__Job *failed = service_job(y, job);
    assert_string_equal(failed->reason, "rank 0: died in a test (after 1 of 1 restarts)");
    trainyard__v1__job__free_unpacked(failed, NULL);

    OK(service_call_by_name(y, "RetryJob", "jobs/1", &e));
    agent_expect(a, TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_STOP);
    agent_expect(a, TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_ACKNOWLEDGED);
    service_run(y, &a, 1, job, 3);
    service_assert_job(y, job, STATE(RUNNING), 3, 0);
    agent_free(a);
}

struct retry {
    struct service_fixture *y;
    status_t status;
    char reason[RPC_REASON_BYTES];
};

static void *retry_one(void *ctx) {
    struct retry *r = ctx;
    Trainyard__V1__RetryJobRequest request = TRAINYARD__V1__RETRY_JOB_REQUEST__INIT;
    request.name = (char *)"jobs/1";
    ProtobufCMessage *reply = NULL;
    struct err e;
    r->status = rpc_call_unary_reason(r->y->channel, &trainyard__v1__job_service__descriptor, "RetryJob", &request.base,
                                      FIXTURE_PATIENCE_MS, &reply, r->reason, &e);
    if (r->status == ST_OK)
        protobuf_c_message_free_unpacked(reply, NULL);
    return NULL;
}

/* The second request arrives while the loop waits for the first one's change of the row. */
static void of_two_concurrent_retries_one_gets_job_not_failed(void **state) {
    struct service_fixture *y = *state;
    service_submit(y, 1, 0);
    pg_force(y->conninfo, "UPDATE job SET state = 10, end_time = now()");
    service_stop_controller(y);
    service_start_controller(y); /* the new controller does not know the job, as after its end */
    struct pg_open *open = pg_begin(y->conninfo, "SELECT 1 FROM job FOR UPDATE");
    struct retry retries[2] = { { .y = y }, { .y = y } };
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, retry_one, &retries[i]), 0);
    pg_await_blocked(y->pg, y->conninfo, 1);
    pg_commit(open);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    const struct retry *second = &retries[retries[0].status == ST_OK];
    assert_int_equal(retries[second == retries].status, ST_OK);
    assert_int_equal(second->status, ST_FAILED_PRECONDITION);
    assert_string_equal(second->reason, "JOB_NOT_FAILED");
    service_await_state(y, 1, STATE(QUEUED));
}

/* The loop reads the row as FAILED, and finds another transaction's change when it makes its own. */
static void a_retry_that_is_refused_for_another_reason_does_not_report_origin_gone(void **state) {
    struct service_fixture *y = *state;
    service_submit(y, 1, 0);
    pg_force(y->conninfo, "UPDATE job SET state = 10, end_time = now()");
    service_stop_controller(y);
    service_start_controller(y);
    struct pg_open *open = pg_begin(y->conninfo, "SET session_replication_role = replica; UPDATE job SET state = 11");
    struct retry retry = { .y = y };
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, retry_one, &retry), 0);
    pg_await_blocked(y->pg, y->conninfo, 1);
    pg_commit(open);
    pthread_join(thread, NULL);
    assert_int_equal(retry.status, ST_FAILED_PRECONDITION);
    assert_string_equal(retry.reason, "JOB_NOT_FAILED");
}

static void report_chosen(struct agent *a, int64_t sequence, Trainyard__V1__JobSpec *spec) {
    Trainyard__V1__PlanChosen plan = TRAINYARD__V1__PLAN_CHOSEN__INIT;
    Trainyard__V1__WorkerRecord record = TRAINYARD__V1__WORKER_RECORD__INIT, *records = &record;
    plan.spec = spec;
    record.record_case = TRAINYARD__V1__WORKER_RECORD__RECORD_CHOSEN;
    record.chosen = &plan;
    agent_report(a, 1, 1, 0, sequence, &records, 1);
}

static void assert_train(struct service_fixture *y, int32_t micro_batch, int32_t lanes, const char *recompute) {
    Trainyard__V1__Job *job = service_job(y, 1);
    assert_int_equal(job->spec->train->micro_batch, micro_batch);
    assert_int_equal(job->spec->train->lanes, lanes);
    assert_string_equal(job->spec->train->recompute, recompute);
    assert_true(job->spec->train->micro_batch_auto);
    assert_string_equal(job->spec->name, "test");
    assert_int_equal(job->spec->train->steps, 10);
    trainyard__v1__job__free_unpacked(job, NULL);
}

/* A worker may report any values for the other fields. */
static void a_chosen_plan_sets_what_was_left_open_and_nothing_else(void **state) {
    struct service_fixture *y = *state;
    struct agent *a = agent_new(y, "host-a", 1, 1);
    agent_attach(a, NULL);
    Trainyard__V1__CreateJobRequest request = TRAINYARD__V1__CREATE_JOB_REQUEST__INIT;
    request.wait_for_hosts = true;
    Trainyard__V1__ResourcesSpec resources = TRAINYARD__V1__RESOURCES_SPEC__INIT;
    Trainyard__V1__JobSpec *spec = request.spec = service_spec(1, 0);
    resources.memory_bytes = 1 << 30;
    spec->resources = &resources;
    spec->train->micro_batch_auto = true;
    spec->train->recompute = (char *)"auto";
    spec->train->_recompute_case = TRAINYARD__V1__TRAIN_SPEC___RECOMPUTE_RECOMPUTE;
    ProtobufCMessage *reply;
    OK(service_call(y, "CreateJob", &request.base, &reply, &e));
    protobuf_c_message_free_unpacked(reply, NULL);
    service_run(y, &a, 1, 1, 1);

    spec->name = (char *)"another";
    spec->train->steps = 99;
    spec->train->_micro_batch_case = TRAINYARD__V1__TRAIN_SPEC___MICRO_BATCH_MICRO_BATCH;
    spec->train->_lanes_case = TRAINYARD__V1__TRAIN_SPEC___LANES_LANES;
    spec->train->micro_batch = 3; /* does not divide the batch of 8 */
    spec->train->lanes = 2;
    spec->train->recompute = (char *)"block";
    report_chosen(a, 1, spec);
    assert_train(y, 0, 0, "auto");
    spec->train->micro_batch = 2;
    spec->train->_recompute_case = TRAINYARD__V1__TRAIN_SPEC___RECOMPUTE__NOT_SET;
    report_chosen(a, 2, spec);
    assert_train(y, 0, 0, "auto");
    spec->train->_recompute_case = TRAINYARD__V1__TRAIN_SPEC___RECOMPUTE_RECOMPUTE;
    report_chosen(a, 3, spec);
    assert_train(y, 2, 2, "block");
    spec->train->micro_batch = 4;
    spec->train->recompute = (char *)"none";
    report_chosen(a, 4, spec);
    assert_train(y, 2, 2, "block");
    agent_free(a);
}

static void a_request_id_makes_one_job(void **state) {
    struct service_fixture *y = *state;
    Trainyard__V1__CreateJobRequest request = TRAINYARD__V1__CREATE_JOB_REQUEST__INIT;
    request.wait_for_hosts = true;
    char names[2][64];
    for (int i = 0; i < 2; i++) {
        request.spec = service_spec(1, 0);
        request.request_id = "3b241101-e2bb-4255-8caf-4136c566a962";
        ProtobufCMessage *reply;
        OK(service_call(y, "CreateJob", &request.base, &reply, &e));
        snprintf(names[i], sizeof names[i], "%s", ((Trainyard__V1__Job *)reply)->name);
        protobuf_c_message_free_unpacked(reply, NULL);
    }
    assert_string_equal(names[0], names[1]);
}

static status_t create_by(struct service_fixture *y, const char *request_id, int64_t steps, char name[64],
                          struct err *e) {
    Trainyard__V1__CreateJobRequest request = TRAINYARD__V1__CREATE_JOB_REQUEST__INIT;
    request.wait_for_hosts = true;
    request.spec = service_spec(1, 0);
    request.spec->train->steps = steps;
    request.request_id = (char *)request_id;
    ProtobufCMessage *reply = NULL;
    TRY(service_call(y, "CreateJob", &request.base, &reply, e));
    snprintf(name, 64, "%s", ((Trainyard__V1__Job *)reply)->name);
    protobuf_c_message_free_unpacked(reply, NULL);
    return ST_OK;
}

static void a_request_id_is_a_uuid_of_one_spec(void **state) {
    struct service_fixture *y = *state;
    static const char *const bad[] = { "asked", "3b241101e2bb42558caf4136c566a962",
                                       "3b241101-e2bb-4255-8caf-4136c566a96g", "controller-1-1",
                                       "{3b241101-e2bb-4255-8caf-4136c566a96}" };
    char first[64], again[64];
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        FAILS(create_by(y, bad[i], 10, first, &e), ST_INVALID_ARGUMENT, "is not a UUID");
    OK(create_by(y, "3b241101-e2bb-4255-8caf-4136c566a962", 10, first, &e));
    OK(create_by(y, "3B241101-E2BB-4255-8CAF-4136C566A962", 10, again, &e));
    assert_string_equal(first, again);
    FAILS(create_by(y, "3b241101-e2bb-4255-8caf-4136c566a962", 11, again, &e), ST_ALREADY_EXISTS,
          "request_id: '3b241101-e2bb-4255-8caf-4136c566a962' made jobs/1 of another spec");
    assert_int_equal(pg_number(y->conninfo, "SELECT count(*) FROM job"), 1);
    Trainyard__V1__CancelJobRequest cancel = TRAINYARD__V1__CANCEL_JOB_REQUEST__INIT;
    cancel.name = "1";
    cancel.request_id = "now";
    ProtobufCMessage *reply;
    FAILS(service_call(y, "CancelJob", &cancel.base, &reply, &e), ST_INVALID_ARGUMENT, "is not a UUID");
}

static status_t create_wide(struct service_fixture *y, int ranks, bool wait, struct err *e) {
    Trainyard__V1__CreateJobRequest request = TRAINYARD__V1__CREATE_JOB_REQUEST__INIT;
    request.spec = service_spec(ranks, 0);
    request.wait_for_hosts = wait;
    ProtobufCMessage *reply = NULL;
    TRY(service_call(y, "CreateJob", &request.base, &reply, e));
    protobuf_c_message_free_unpacked(reply, NULL);
    return ST_OK;
}

static void a_job_that_no_hosts_can_hold_gets_an_id_only_where_it_may_wait_for_more(void **state) {
    struct service_fixture *y = *state;
    FAILS(create_wide(y, 1, false, &e), ST_INVALID_ARGUMENT,
          "resources.accelerator: needs 1 cpu slot, and no executor is attached; add --wait-for-hosts");
    struct agent *a = agent_new(y, "host-a", 1, 1);
    agent_attach(a, NULL);
    OK(create_wide(y, 1, false, &e)); /* the welcome is enough */
    FAILS(create_wide(y, 2, false, &e), ST_INVALID_ARGUMENT,
          "parallel: needs 2 cpu slots, more than the 1 of all attached executors; add --wait-for-hosts");
    assert_int_equal(pg_number(y->conninfo, "SELECT count(*) FROM job"), 1);
    OK(create_wide(y, 2, true, &e));
    OK(controller_drain(y->controller, "host-a", "", "", false, deadline_in(FIXTURE_PATIENCE_MS), &e));
    OK(create_wide(y, 1, false, &e)); /* a drained executor may be undrained */
    /* A new leader does not know yet which executors will attach again. */
    agent_free(a);
    service_stop_controller(y);
    service_start_controller(y);
    OK(create_wide(y, 2, false, &e));
}

static void a_cancel_with_the_same_request_id_happens_once(void **state) {
    struct service_fixture *y = *state;
    service_submit(y, 1, 0);
    service_submit(y, 1, 0);
    Trainyard__V1__CancelJobRequest request = TRAINYARD__V1__CANCEL_JOB_REQUEST__INIT;
    request.request_id = "3b241101-e2bb-4255-8caf-4136c566a962";
    for (int job = 1; job <= 2; job++)
        for (int again = 0; again < 2; again++) {
            request.name = job == 1 ? "jobs/1" : "jobs/2";
            ProtobufCMessage *reply;
            OK(service_call(y, "CancelJob", &request.base, &reply, &e));
            assert_int_equal(((Trainyard__V1__Job *)reply)->state, STATE(CANCELLED));
            protobuf_c_message_free_unpacked(reply, NULL);
        }
    FAILS(service_call_by_name(y, "CancelJob", "jobs/1", &e), ST_FAILED_PRECONDITION, "CANCELLED");
}

static void a_wrong_spec_is_refused_with_every_problem(void **state) {
    struct service_fixture *y = *state;
    Trainyard__V1__CreateJobRequest request = TRAINYARD__V1__CREATE_JOB_REQUEST__INIT;
    request.spec = service_spec(1, 0);
    request.spec->model->gpt->heads = 5;
    request.spec->train->steps = -1;
    ProtobufCMessage *reply;
    FAILS(service_call(y, "CreateJob", &request.base, &reply, &e), ST_INVALID_ARGUMENT, "model.gpt.heads");
    FAILS(service_call(y, "CreateJob", &request.base, &reply, &e), ST_INVALID_ARGUMENT, "train.steps");
}

static void illegal_moves_and_unknown_jobs_are_clear_errors(void **state) {
    struct service_fixture *y = *state;
    FAILS(service_call_by_name(y, "GetJob", "jobs/99", &e), ST_NOT_FOUND, "jobs/99 does not exist");
    FAILS(service_call_by_name(y, "CancelJob", "99", &e), ST_NOT_FOUND, "does not exist");
    FAILS(service_call_by_name(y, "GetJob", "jobs/x", &e), ST_INVALID_ARGUMENT, "'jobs/x'");
    int64_t job = service_submit(y, 1, 0);
    FAILS(service_call_by_name(y, "RetryJob", "1", &e), ST_FAILED_PRECONDITION, "not FAILED");
    assert_string_equal(service_last_reason, "JOB_NOT_FAILED");
    OK(service_call_by_name(y, "CancelJob", "1", &e));
    service_assert_job(y, job, STATE(CANCELLED), 0, 0);
    FAILS(service_call_by_name(y, "CancelJob", "1", &e), ST_FAILED_PRECONDITION, "CANCELLED");
    assert_string_equal(service_last_reason, "JOB_ENDED");
}

static void a_cancelled_gang_is_stopped_before_the_job_is_cancelled(void **state) {
    struct service_fixture *y = *state;
    struct agent *a = agent_new(y, "host-a", 1, 1);
    agent_attach(a, NULL);
    int64_t job = service_submit(y, 1, 0);
    service_run(y, &a, 1, job, 1);
    OK(service_call_by_name(y, "CancelJob", "1", &e));
    agent_expect(a, TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_STOP);
    service_assert_job(y, job, STATE(CANCELLING), 1, 0);
    FAILS(service_call_by_name(y, "CancelJob", "1", &e), ST_FAILED_PRECONDITION, "already being cancelled");
    assert_string_equal(service_last_reason, "JOB_NOT_CANCELLABLE");
    agent_say_ended(a, job, 1, 0, TRAINYARD__V1__WORKER_END__CAUSE__STOPPED, 0);
    service_await_state(y, job, STATE(CANCELLED));
    agent_free(a);
}

static status_t list(struct service_fixture *y, int size, const char *token, Trainyard__V1__Job__State filter,
                     Trainyard__V1__ListJobsResponse **ret, struct err *e) {
    Trainyard__V1__ListJobsRequest request = TRAINYARD__V1__LIST_JOBS_REQUEST__INIT;
    request.page_size = size;
    request.page_token = (char *)token;
    request.state = filter;
    return service_call(y, "ListJobs", &request.base, (ProtobufCMessage **)ret, e);
}

static void pages_hold_every_job_once_and_a_token_belongs_to_its_filter(void **state) {
    struct service_fixture *y = *state;
    for (int i = 0; i < 7; i++)
        service_submit(y, 1, 0);
    char token[64] = "";
    int64_t before = 8, seen = 0;
    do {
        Trainyard__V1__ListJobsResponse *page = NULL;
        OK(list(y, 3, token, STATE(STATE_UNSPECIFIED), &page, &e));
        for (size_t i = 0; i < page->n_jobs; i++, seen++) {
            int64_t id = atoll(page->jobs[i]->name + 5);
            assert_int_equal(id, --before);
        }
        snprintf(token, sizeof token, "%s", page->next_page_token);
        trainyard__v1__list_jobs_response__free_unpacked(page, NULL);
        Trainyard__V1__ListJobsResponse *other;
        if (token[0])
            FAILS(list(y, 3, token, STATE(QUEUED), &other, &e), ST_INVALID_ARGUMENT, "other filters");
    } while (token[0]);
    assert_int_equal(seen, 7);
}

static void a_watcher_sees_every_event_once_and_can_resume(void **state) {
    struct service_fixture *y = *state;
    struct agent *a = agent_new(y, "host-a", 1, 1);
    agent_attach(a, NULL);
    int64_t job = service_submit(y, 1, 0);
    service_run(y, &a, 1, job, 1);
    service_finish(&a, 1, job, 1);
    for (int64_t after = 0; after < 3; after++) {
        Trainyard__V1__WatchJobRequest request = TRAINYARD__V1__WATCH_JOB_REQUEST__INIT;
        request.name = "1";
        request.after_event = after;
        struct rpc_stream *stream;
        OK(rpc_stream_open(y->channel, &trainyard__v1__job_service__descriptor, "WatchJob", &request.base,
                           FIXTURE_PATIENCE_MS, &stream, &e));
        int64_t seen = after;
        const ProtobufCMessage *m;
        bool ended = false;
        for (;;) {
            OK(rpc_stream_next(stream, &m, &e));
            if (!m)
                break;
            const Trainyard__V1__WatchJobResponse *update = (const void *)m;
            if (update->update_case == TRAINYARD__V1__WATCH_JOB_RESPONSE__UPDATE_EVENT)
                assert_int_equal(update->event->number, ++seen);
            if (update->job) {
                assert_int_equal(update->job->state, STATE(SUCCEEDED));
                assert_int_equal(update->job->last_event, seen);
                ended = true;
            }
        }
        assert_true(ended);
        rpc_stream_close(stream);
    }
    agent_free(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(a_gang_goes_from_submit_to_success),
        FIXTURE_TEST(a_job_is_not_done_before_its_last_record_is_stored),
        FIXTURE_TEST(a_dead_worker_costs_one_restart_and_the_last_one_fails_the_job),
        FIXTURE_TEST(of_two_concurrent_retries_one_gets_job_not_failed),
        FIXTURE_TEST(a_retry_that_is_refused_for_another_reason_does_not_report_origin_gone),
        FIXTURE_TEST(a_chosen_plan_sets_what_was_left_open_and_nothing_else),
        FIXTURE_TEST(a_request_id_makes_one_job),
        FIXTURE_TEST(a_request_id_is_a_uuid_of_one_spec),
        FIXTURE_TEST(a_job_that_no_hosts_can_hold_gets_an_id_only_where_it_may_wait_for_more),
        FIXTURE_TEST(a_cancel_with_the_same_request_id_happens_once),
        FIXTURE_TEST(a_wrong_spec_is_refused_with_every_problem),
        FIXTURE_TEST(illegal_moves_and_unknown_jobs_are_clear_errors),
        FIXTURE_TEST(a_cancelled_gang_is_stopped_before_the_job_is_cancelled),
        FIXTURE_TEST(pages_hold_every_job_once_and_a_token_belongs_to_its_filter),
        FIXTURE_TEST(a_watcher_sees_every_event_once_and_can_resume),
    };
    return cmocka_run_group_tests(tests, service_group_setup, service_group_teardown);
}
