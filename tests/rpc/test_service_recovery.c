/* What happens to jobs when agents, controllers and PostgreSQL fail and return. */
#include "service/controller/inbox.h"
#include "service/store/queue.h"
#include "tests/rpc/service_fixture.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define STATE(s) TRAINYARD__V1__JOB__STATE__##s

static void a_restarted_agent_costs_an_attempt_but_no_restart(void **state) {
    struct service_fixture *y = *state;
    struct agent *a = agent_new(y, "host-a", 1, 1);
    agent_attach(a, NULL);
    int64_t job = service_submit(y, 1, 0);
    service_run(y, &a, 1, job, 1);
    agent_free(a);

    Trainyard__V1__RankEnd end = TRAINYARD__V1__RANK_END__INIT, *ends = &end;
    end.cause = TRAINYARD__V1__WORKER_END__CAUSE__AGENT_LOST;
    end.message = "died with its agent";
    end.time_us = 1;
    Trainyard__V1__AttemptEnded ended = TRAINYARD__V1__ATTEMPT_ENDED__INIT;
    ended.job = job;
    ended.attempt = 1;
    ended.ranks = &ends;
    ended.n_ranks = 1;
    Trainyard__V1__AttemptStatus status = TRAINYARD__V1__ATTEMPT_STATUS__INIT;
    status.job = job;
    status.attempt = 1;
    status.ended = true;
    status.end = &ended;
    a = agent_new(y, "host-a", 2, 1);
    agent_attach(a, &status);
    agent_expect(a, TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_STOP);
    agent_expect(a, TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_ACKNOWLEDGED);
    service_run(y, &a, 1, job, 2);
    service_assert_job(y, job, STATE(RUNNING), 2, 0);
    agent_free(a);
}

static Trainyard__V1__AttemptStatus running_status(int64_t job, int attempt, Trainyard__V1__RankStatus **rank) {
    Trainyard__V1__AttemptStatus status = TRAINYARD__V1__ATTEMPT_STATUS__INIT;
    status.job = job;
    status.attempt = attempt;
    status.world_size = 1;
    status.ranks = rank;
    status.n_ranks = 1;
    return status;
}

static void a_controller_that_starts_again_adopts_what_runs(void **state) {
    struct service_fixture *y = *state;
    struct agent *a = agent_new(y, "host-a", 1, 1);
    agent_attach(a, NULL);
    int64_t job = service_submit(y, 1, 0);
    service_run(y, &a, 1, job, 1);
    service_stop_controller(y);
    agent_free(a);
    service_start_controller(y);

    Trainyard__V1__RankStatus rank = TRAINYARD__V1__RANK_STATUS__INIT, *ranks = &rank;
    rank.pid = 1;
    rank.joined = true;
    Trainyard__V1__AttemptStatus status = running_status(job, 1, &ranks);
    a = agent_new(y, "host-a", 1, 1);
    agent_attach(a, &status);
    service_finish(&a, 1, job, 1);
    service_await_state(y, job, STATE(SUCCEEDED));
    service_assert_job(y, job, STATE(SUCCEEDED), 1, 0);
    agent_free(a);
}

static void a_host_with_an_old_attempt_gets_a_stop_and_nothing_new_until_it_has_ended(void **state) {
    struct service_fixture *y = *state;
    Trainyard__V1__RankStatus rank = TRAINYARD__V1__RANK_STATUS__INIT, *ranks = &rank;
    Trainyard__V1__AttemptStatus status = running_status(77, 3, &ranks);
    struct agent *a = agent_new(y, "host-a", 1, 1);
    agent_attach(a, &status);
    assert_int_equal(agent_expect(a, TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_STOP)->stop->job, 77);
    int64_t job = service_submit(y, 1, 0);
    service_assert_job(y, job, STATE(QUEUED), 0, 0);
    assert_true(agent_idle(a));
    agent_say_ended(a, 77, 3, 0, TRAINYARD__V1__WORKER_END__CAUSE__STOPPED, 0);
    /* First the old attempt is settled, then the new one starts. */
    service_await_state(y, job, STATE(STARTING));
    agent_free(a);
}

static void postgresql_may_die_without_the_running_attempt_noticing(void **state) {
    struct service_fixture *y = *state;
    struct agent *a = agent_new(y, "host-a", 1, 1);
    agent_attach(a, NULL);
    int64_t job = service_submit(y, 1, 0);
    service_run(y, &a, 1, job, 1);
    pg_kill(y->pg);
    FAILS(service_call_by_name(y, "GetJob", "1", &e), ST_UNAVAILABLE, "");
    agent_say_ended(a, job, 1, 0, TRAINYARD__V1__WORKER_END__CAUSE__FINISHED, 3);
    pg_restart(y->pg);
    agent_report_end(a, job, 1, 0, 1);
    agent_expect(a, TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_ACKNOWLEDGED);
    service_await_state(y, job, STATE(SUCCEEDED));
    service_assert_job(y, job, STATE(SUCCEEDED), 1, 0);
    agent_free(a);
}

/* As after a COMMIT whose answer was lost: the row exists, and the loop does not know it. */
static void a_job_whose_stored_answer_was_lost_runs_when_it_is_asked_for_again(void **state) {
    struct service_fixture *y = *state;
    struct agent *a = agent_new(y, "host-a", 1, 1);
    agent_attach(a, NULL);
    Trainyard__V1__CreateJobRequest request = TRAINYARD__V1__CREATE_JOB_REQUEST__INIT;
    request.wait_for_hosts = true;
    request.spec = service_spec(1, 0);
    request.request_id = "6f1e0d52-7c0e-4a44-9f07-0f8a3f1b2c03";
    uint8_t spec[4096];
    struct store_job_new row = { .request_id = request.request_id,
                                 .name = "test",
                                 .queue = "default",
                                 .world_size = 1,
                                 .accelerator = "cpu",
                                 .spec = spec,
                                 .spec_bytes = trainyard__v1__job_spec__pack(request.spec, spec) };
    int64_t epoch, job;
    bool existed;
    OK(controller_leads(y->controller, &epoch, &e));
    OK(store_job_create(controller_store(y->controller), epoch, &row, &job, &existed, NULL, &e));
    ProtobufCMessage *reply;
    OK(service_call(y, "CreateJob", &request.base, &reply, &e));
    protobuf_c_message_free_unpacked(reply, NULL);
    assert_int_equal(agent_expect(a, TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_START)->start->job, job);
    agent_free(a);
}

/* A stream without an agent. */
static bool link_send(void *ctx, const Trainyard__V1__ControllerMessage *m) {
    (void)ctx;
    (void)m;
    return true;
}

static void link_close(void *ctx, status_t st, const char *why) {
    (void)why;
    *(status_t *)ctx = st;
}

/* token: the name of the caller's, or NULL. */
static uint64_t link_attach(struct service_fixture *y, int64_t incarnation, const char *token, status_t *closed) {
    struct dispatch_link link = {
        .send = link_send, .close = link_close, .ctx = closed, .caller = token ? token : "", .token = token
    };
    snprintf(link.host.hostname, sizeof link.host.hostname, "test"); /* that of the fixture's agents */
    *closed = ST_OK;
    return dispatch_attach(controller_dispatch(y->controller), "host-a", incarnation, &link);
}

static void a_stream_whose_token_may_not_speak_for_the_executor_ends_no_rank(void **state) {
    struct service_fixture *y = *state;
    struct dispatch *d = controller_dispatch(y->controller);
    struct agent *a = agent_new(y, "host-a", 1, 1);
    status_t closed;
    agent_attach(a, NULL);
    int64_t job = service_submit(y, 1, 0);
    service_run(y, &a, 1, job, 1);
    agent_free(a);
    while (dispatch_attached(d, "host-a"))
        sched_yield();

    const uint64_t ticket = link_attach(y, 2, "another-executors", &closed);
    Trainyard__V1__AgentHello hello = TRAINYARD__V1__AGENT_HELLO__INIT;
    hello.executor = "host-a";
    hello.hostname = hello.address = hello.version = "test";
    hello.incarnation = 2;
    Trainyard__V1__RankEnd end = TRAINYARD__V1__RANK_END__INIT;
    end.cause = TRAINYARD__V1__WORKER_END__CAUSE__INTERNAL;
    end.message = "a lie";
    end.time_us = 1;
    Trainyard__V1__RankEnded ended = TRAINYARD__V1__RANK_ENDED__INIT;
    ended.job = job;
    ended.attempt = 1;
    ended.end = &end;
    Trainyard__V1__AgentMessage first = TRAINYARD__V1__AGENT_MESSAGE__INIT, second = first;
    first.message_case = TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_HELLO;
    first.hello = &hello;
    second.message_case = TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_RANK_ENDED;
    second.rank_ended = &ended;
    OK(controller_handle_agent_message(y->controller, "host-a", 2, ticket, &first, &e));
    OK(controller_handle_agent_message(y->controller, "host-a", 2, ticket, &second, &e));
    service_assert_job(y, job, STATE(RUNNING), 1, 0);
    OK(service_call_by_name(y, "CancelJob", "1", NULL)); /* the loop answers in order */
    dispatch_detach(d, ticket); /* under the lock under which `closed` was written */
    assert_int_equal(closed, ST_PERMISSION_DENIED);
    assert_int_equal(pg_number(y->conninfo, "SELECT count(*) FROM placement WHERE message LIKE 'a lie%'"), 0);
}

static void a_full_inbox_does_not_keep_a_stored_queue_from_the_scheduler(void **state) {
    struct service_fixture *y = *state;
    struct agent *a = agent_new(y, "host-a", 1, 1);
    status_t closed, full = ST_OK;
    struct err why;
    agent_attach(a, NULL);
    int64_t job = service_submit(y, 1, 0);
    service_run(y, &a, 1, job, 1);
    const uint64_t ticket = link_attach(y, 1, NULL, &closed);
    Trainyard__V1__ControllerMessage welcome = TRAINYARD__V1__CONTROLLER_MESSAGE__INIT;
    dispatch_welcome(controller_dispatch(y->controller), ticket, &welcome);

    struct pg_open *lock = pg_begin(y->conninfo, "SELECT FROM job FOR UPDATE");
    Trainyard__V1__RankEnd end = TRAINYARD__V1__RANK_END__INIT;
    end.cause = TRAINYARD__V1__WORKER_END__CAUSE__INTERNAL;
    end.message = "it keeps the loop waiting for the lock";
    end.time_us = 1;
    Trainyard__V1__RankEnded ended = TRAINYARD__V1__RANK_ENDED__INIT;
    ended.job = job;
    ended.attempt = 1;
    ended.end = &end;
    Trainyard__V1__RankOffer offer = TRAINYARD__V1__RANK_OFFER__INIT; /* of an unknown job */
    offer.address.len = INBOX_BYTES / 5;
    offer.address.data = calloc(1, offer.address.len);
    Trainyard__V1__AgentMessage m = TRAINYARD__V1__AGENT_MESSAGE__INIT;
    m.message_case = TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_RANK_ENDED;
    m.rank_ended = &ended;
    OK(controller_handle_agent_message(y->controller, "host-a", 1, ticket, &m, &why));
    pg_await_blocked(y->pg, y->conninfo, 1);
    m.message_case = TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_RANK_OFFER;
    m.rank_offer = &offer;
    while (full == ST_OK)
        full = controller_handle_agent_message(y->controller, "host-a", 1, ticket, &m, &why);
    assert_int_equal(full, ST_RESOURCE_EXHAUSTED);
    const struct store_queue_settings settings = STORE_QUEUE_DEFAULTS;
    /* It is stored, and the loop gets it, but does not answer in time. */
    assert_int_equal(controller_queue_create(y->controller, "new", &settings, deadline_in(0), &why),
                     ST_DEADLINE_EXCEEDED);
    pg_commit(lock);
    free(offer.address.data);
    dispatch_detach(controller_dispatch(y->controller), ticket);
    agent_free(a);
}

static void say_quarantined(struct service_fixture *y, uint64_t ticket, int64_t incarnation, const char *reason) {
    Trainyard__V1__Device device = TRAINYARD__V1__DEVICE__INIT, *devices = &device;
    device.kind = "cuda";
    device.state = TRAINYARD__V1__DEVICE__STATE__QUARANTINED;
    device.reason = (char *)reason;
    Trainyard__V1__DevicesChanged changed = TRAINYARD__V1__DEVICES_CHANGED__INIT;
    changed.devices = &devices;
    changed.n_devices = 1;
    Trainyard__V1__AgentMessage m = TRAINYARD__V1__AGENT_MESSAGE__INIT;
    m.message_case = TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_DEVICES_CHANGED;
    m.devices_changed = &changed;
    OK(controller_handle_agent_message(y->controller, "host-a", incarnation, ticket, &m, &e));
}

static void of_an_older_starts_devices_nothing_is_logged(void **state) {
    struct service_fixture *y = *state;
    struct agent *a = agent_new(y, "host-a", 5, 1);
    agent_attach(a, NULL);
    service_submit(y, 1, 0);
    status_t closed;
    const uint64_t ticket = link_attach(y, 5, NULL, &closed);
    Trainyard__V1__ControllerMessage m = TRAINYARD__V1__CONTROLLER_MESSAGE__INIT;
    dispatch_welcome(controller_dispatch(y->controller), ticket, &m);
    FILE *log = tmpfile();
    int terminal = dup(STDERR_FILENO);
    dup2(fileno(log), STDERR_FILENO);
    say_quarantined(y, ticket, 4, "said-by-the-older");
    say_quarantined(y, ticket, 5, "said-by-the-newer");
    status_t st = service_call_by_name(y, "CancelJob", "1", NULL); /* the loop answers in order */
    dup2(terminal, STDERR_FILENO);
    close(terminal);
    static char text[1 << 16];
    rewind(log);
    size_t n = fread(text, 1, sizeof text - 1, log);
    fclose(log);
    text[n] = '\0';
    assert_int_equal(st, ST_OK);
    assert_non_null(strstr(text, "said-by-the-newer"));
    assert_null(strstr(text, "said-by-the-older"));
    dispatch_detach(controller_dispatch(y->controller), ticket);
    agent_free(a);
}

/* A session that waits for the leader's lock, and gets it when the leader loses the lock. */
static void *lock_next(void *conninfo) {
    return pg_begin(conninfo, "SELECT pg_advisory_lock((classid::bigint << 32) | objid::bigint) FROM pg_locks "
                              "WHERE locktype = 'advisory' AND granted");
}

static void a_controller_that_lost_the_lock_to_another_one_is_deposed_while_that_one_leads(void **state) {
    struct service_fixture *y = *state;
    struct pg_open *leader = NULL;
    pthread_t next;
    struct agent *a = agent_new(y, "host-a", 1, 1);
    agent_attach(a, NULL);
    assert_int_equal(pthread_create(&next, NULL, lock_next, y->conninfo), 0);
    pg_await_blocked(y->pg, y->conninfo, 1);
    pg_run(y->conninfo, "SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory' AND granted");
    pthread_join(next, (void **)&leader);
    pg_run(y->conninfo, "UPDATE leader SET epoch = epoch + 1, holder = 'another', elected_at = now()");
    assert_string_equal(agent_await_closed(a), "UNAVAILABLE: this controller no longer leads");
    assert_true(controller_deposed(y->controller));
    pg_commit(leader); /* and releases the lock */
    agent_free(a);
}

/* As between the end of an epoch and the controller's next check of its lock. */
static void a_mutation_under_an_epoch_that_is_over_may_be_asked_for_again(void **state) {
    struct service_fixture *y = *state;
    struct agent *a = agent_new(y, "host-a", 1, 1);
    agent_attach(a, NULL);
    int64_t epoch, job = service_submit(y, 1, 0);
    service_run(y, &a, 1, job, 1);
    service_finish(&a, 1, job, 1);
    service_await_state(y, job, STATE(SUCCEEDED));
    OK(controller_leads(y->controller, &epoch, &e));
    FAILS(controller_write_status(y->controller, epoch, err_set(&e, ST_FAILED_PRECONDITION, "refused"), &e),
          ST_FAILED_PRECONDITION, "refused");
    pg_run(y->conninfo, "UPDATE leader SET epoch = epoch + 1");
    Trainyard__V1__CreateJobRequest create = TRAINYARD__V1__CREATE_JOB_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    create.spec = service_spec(1, 0);
    FAILS(service_call(y, "CreateJob", &create.base, &reply, &e), ST_UNAVAILABLE, "lead");
    FAILS(service_call_by_name(y, "DeleteJob", "1", &e), ST_UNAVAILABLE, "lead");
    FAILS(controller_checkpoint_pin(y->controller, job, 1, true, &e), ST_UNAVAILABLE, "lead");
    FAILS(controller_checkpoint_delete(y->controller, job, 1, &e), ST_UNAVAILABLE, "lead");
    agent_free(a);
}

static const char *refusal_of(struct service_fixture *y, const char *cluster, int64_t epoch, const char *nonce) {
    static char why[300];
    struct agent *a = agent_new(y, "host-a", 1, 1);
    agent_has_obeyed(a, cluster, epoch, nonce);
    agent_hello(a, NULL);
    snprintf(why, sizeof why, "%s", agent_await_closed(a));
    agent_free(a);
    return why;
}

static void an_executor_that_knows_a_forgotten_election_raises_the_epoch_above_it(void **state) {
    struct service_fixture *y = *state;
    static const char nonce[] = "99999999-2222-3333-4444-555555555555";
    const char *why = refusal_of(y, nonce, 0, "");
    assert_int_equal(strncmp(why, "FAILED_PRECONDITION: executor host-a belongs to cluster", 55), 0);
    why = refusal_of(y, "", 1LL << 60, nonce);
    assert_int_equal(strncmp(why, "INVALID_ARGUMENT: hello.highest_epoch", 37), 0);
    why = refusal_of(y, "", -1, nonce);
    assert_int_equal(strncmp(why, "INVALID_ARGUMENT: hello.highest_epoch", 37), 0);
    int64_t before, epoch;
    OK(controller_leads(y->controller, &before, &e));
    why = refusal_of(y, "", before, nonce); /* the repeated number */
    assert_int_equal(strncmp(why, "UNAVAILABLE: executor host-a has obeyed epoch", 45), 0);
    why = refusal_of(y, "", before + 40, nonce);
    assert_int_equal(strncmp(why, "UNAVAILABLE: executor host-a has obeyed epoch", 45), 0);
    for (deadline_ms_t deadline = deadline_in(FIXTURE_PATIENCE_MS);;) {
        OK(controller_wait_leading(y->controller, deadline, &e));
        if (controller_leads(y->controller, &epoch, NULL) == ST_OK && epoch > before + 40)
            break;
        assert_true(clock_mono_ms() < deadline);
    }
    struct agent *a = agent_new(y, "host-a", 1, 1);
    agent_has_obeyed(a, "", before + 40, nonce);
    agent_hello(a, NULL);
    const Trainyard__V1__ControllerMessage *m = agent_expect(a, TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_WELCOME);
    assert_true(m->epoch > before + 40);
    assert_int_equal(strlen(m->epoch_nonce), 36);
    assert_int_equal(strlen(m->welcome->cluster), 36);
    assert_true(service_submit(y, 1, 0) > 1000000); /* the id of a forgotten job is not used again */
    /* The last hello reported an unknown election below the new epoch, which does not raise the epoch but skips ids
     * too. */
    for (deadline_ms_t deadline = deadline_in(FIXTURE_PATIENCE_MS); service_submit(y, 1, 0) < 2000000;)
        assert_true(clock_mono_ms() < deadline);
    agent_free(a);
}

static void a_record_that_is_not_valid_ends_its_stream_and_the_next_one_is_stored(void **state) {
    struct service_fixture *y = *state;
    struct agent *a = agent_new(y, "host-a", 1, 1);
    agent_attach_alive(a);
    const int64_t job = service_submit(y, 1, 0);
    service_run(y, &a, 1, job, 1);
    static const uint8_t bad_text[] = { 6 << 3 | 2, 4, 2 << 3 | 2, 2, 'a', 0xff };
    assert_string_equal(agent_report_bytes(a, job, 1, 0, 1, bad_text, sizeof bad_text, 1),
                        "INVALID_ARGUMENT: records[0]: log.text: the text is not valid UTF-8");
    agent_report_end(a, job, 1, 0, 1); /* opens another stream */
    agent_say_ended(a, job, 1, 0, TRAINYARD__V1__WORKER_END__CAUSE__FINISHED, 3);
    service_await_state(y, job, STATE(SUCCEEDED));
    agent_free(a);
}

static void a_batch_of_more_records_than_an_agent_sends_ends_its_stream(void **state) {
    struct service_fixture *y = *state;
    struct agent *a = agent_new(y, "host-a", 1, 1);
    agent_attach_alive(a);
    const int64_t job = service_submit(y, 1, 0);
    service_run(y, &a, 1, job, 1);
    assert_string_equal(agent_report_bytes(a, job, 1, 0, 1, "", 0, 4097),
                        "INVALID_ARGUMENT: records: 4097 in one batch, at most 4096 are allowed");
    agent_free(a);
}

static void a_hello_with_more_ranks_of_an_attempt_than_a_job_may_have_is_refused(void **state) {
    struct service_fixture *y = *state;
    enum { RANKS = 1025 };
    static Trainyard__V1__RankStatus rank = TRAINYARD__V1__RANK_STATUS__INIT;
    static Trainyard__V1__RankStatus *ranks[RANKS];
    for (int i = 0; i < RANKS; i++)
        ranks[i] = &rank;
    Trainyard__V1__AttemptStatus status = TRAINYARD__V1__ATTEMPT_STATUS__INIT;
    status.job = 7;
    status.attempt = 1;
    status.ranks = ranks;
    status.n_ranks = RANKS;
    struct agent *a = agent_new(y, "host-a", 1, 1);
    agent_hello(a, &status);
    assert_string_equal(agent_await_closed(a),
                        "INVALID_ARGUMENT: job 7: 1025 ranks of one attempt are reported, at most 1024 are allowed");
    agent_free(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(a_batch_of_more_records_than_an_agent_sends_ends_its_stream),
        FIXTURE_TEST(a_record_that_is_not_valid_ends_its_stream_and_the_next_one_is_stored),
        FIXTURE_TEST(a_hello_with_more_ranks_of_an_attempt_than_a_job_may_have_is_refused),
        FIXTURE_TEST(a_restarted_agent_costs_an_attempt_but_no_restart),
        FIXTURE_TEST(a_controller_that_starts_again_adopts_what_runs),
        FIXTURE_TEST(a_host_with_an_old_attempt_gets_a_stop_and_nothing_new_until_it_has_ended),
        FIXTURE_TEST(postgresql_may_die_without_the_running_attempt_noticing),
        FIXTURE_TEST(a_job_whose_stored_answer_was_lost_runs_when_it_is_asked_for_again),
        FIXTURE_TEST(a_stream_whose_token_may_not_speak_for_the_executor_ends_no_rank),
        FIXTURE_TEST(a_full_inbox_does_not_keep_a_stored_queue_from_the_scheduler),
        FIXTURE_TEST(of_an_older_starts_devices_nothing_is_logged),
        FIXTURE_TEST(a_controller_that_lost_the_lock_to_another_one_is_deposed_while_that_one_leads),
        FIXTURE_TEST(a_mutation_under_an_epoch_that_is_over_may_be_asked_for_again),
        FIXTURE_TEST(an_executor_that_knows_a_forgotten_election_raises_the_epoch_above_it),
    };
    return cmocka_run_group_tests(tests, service_group_setup, service_group_teardown);
}
