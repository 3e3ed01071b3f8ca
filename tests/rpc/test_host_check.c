/* Attached executors check a spec before its job has an id: their results, and the reply that follows from the results.
 */
#include "service/controller/spec_check.h"
#include "tests/rpc/service_fixture.h"

#define START_CHECK TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_START_CHECK
#define STOP_CHECK  TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_STOP_CHECK

/* A CreateJob in progress. It waits for hosts, which the test plays. */
struct creation {
    struct service_fixture *service;
    Trainyard__V1__CreateJobRequest request;
    int timeout_ms;
    pthread_t thread;
    status_t status;
    struct err why;
    char unchecked[640];
};

static void *create(void *ctx) {
    struct creation *c = ctx;
    ProtobufCMessage *reply = NULL;
    c->status = rpc_call_unary(c->service->channel, &trainyard__v1__job_service__descriptor, "CreateJob",
                               &c->request.base, c->timeout_ms, &reply, &c->why);
    if (c->status == ST_OK) {
        const Trainyard__V1__Job *job = (const void *)reply;
        snprintf(c->unchecked, sizeof c->unchecked, "%s", job->n_unchecked ? job->unchecked[0] : "");
        protobuf_c_message_free_unpacked(reply, NULL);
    }
    return NULL;
}

/* The job has more ranks than all agents have slots, so no attempt starts meanwhile. */
static void creation_begin_of(struct service_fixture *y, struct creation *c, int global_batch, int timeout_ms) {
    *c = (struct creation){ .service = y,
                            .request = TRAINYARD__V1__CREATE_JOB_REQUEST__INIT,
                            .timeout_ms = timeout_ms };
    c->request.spec = service_spec(8, 0);
    c->request.spec->train->global_batch = global_batch;
    c->request.wait_for_hosts = true;
    assert_int_equal(pthread_create(&c->thread, NULL, create, c), 0);
}

static void creation_begin(struct service_fixture *y, struct creation *c, int timeout_ms) {
    creation_begin_of(y, c, 8, timeout_ms);
}

static void creation_end(struct creation *c) { assert_int_equal(pthread_join(c->thread, NULL), 0); }

static int64_t check_of(struct agent *a) { return agent_expect(a, START_CHECK)->start_check->check; }

static const char MISSING[] = "data.text.files[0]: open '/data': No such file or directory";

/* The executor that attached last is asked first. Other executors of the same host are not asked. */
static void what_one_host_lacks_is_no_reason_where_another_has_it(void **state) {
    struct service_fixture *y = *state;
    struct agent *b = agent_new_checker(y, "b", "host-b"), *twin = agent_new_checker(y, "twin", "host-a");
    struct agent *a = agent_new_checker(y, "a", "host-a");
    struct creation c;
    creation_begin(y, &c, FIXTURE_PATIENCE_MS);
    int64_t check = check_of(a);
    agent_say_problem(a, check, MISSING, true);
    agent_say_checked(a, check, ST_OK, "");
    agent_say_checked(b, check_of(b), ST_OK, "");
    creation_end(&c);
    assert_int_equal(c.status, ST_OK);
    assert_string_equal(c.unchecked, "host-b has what host host-a lacks: data.text.files[0]: open '/data': No such "
                                     "file or directory");
    assert_true(agent_idle(twin));
    agent_free(a);
    agent_free(b);
    agent_free(twin);
}

static void what_every_host_lacks_is_refused_with_their_names(void **state) {
    struct service_fixture *y = *state;
    struct agent *hosts[2] = { agent_new_checker(y, "b", "host-b"), agent_new_checker(y, "a", "host-a") };
    struct creation c;
    creation_begin(y, &c, FIXTURE_PATIENCE_MS);
    for (int i = 1; i >= 0; i--) { /* the one that attached last is asked first */
        int64_t check = check_of(hosts[i]);
        agent_say_problem(hosts[i], check, MISSING, true);
        agent_say_checked(hosts[i], check, ST_OK, "");
    }
    creation_end(&c);
    assert_int_equal(c.status, ST_INVALID_ARGUMENT);
    assert_string_equal(c.why.msg,
                        "data.text.files[0]: open '/data': No such file or directory (on host host-a and host-b)");
    assert_int_equal(pg_number(y->conninfo, "SELECT count(*) FROM job"), 0);
    agent_free(hosts[0]);
    agent_free(hosts[1]);
}

static void a_job_is_not_refused_while_a_host_is_unchecked(void **state) {
    struct service_fixture *y = *state;
    struct agent *b = agent_new_checker(y, "b", "host-b"), *a = agent_new_checker(y, "a", "host-a");
    struct creation c;
    creation_begin(y, &c, FIXTURE_PATIENCE_MS);
    int64_t check = check_of(a);
    agent_say_problem(a, check, MISSING, true);
    agent_say_checked(a, check, ST_OK, "");
    check = check_of(b);
    agent_say_checked(b, check, ST_RESOURCE_EXHAUSTED, "this executor checks 4 specs already");
    creation_end(&c);
    assert_int_equal(c.status, ST_OK);
    assert_string_equal(c.unchecked, "data.text.files[0]: open '/data': No such file or directory (on host host-a)");
    agent_free(a);
    agent_free(b);
}

static void what_the_hosts_that_were_asked_lack_refuses_nothing_while_there_are_more(void **state) {
    struct service_fixture *y = *state;
    struct agent *hosts[4];
    static const char *const names[] = { "host-a", "host-b", "host-c", "host-d" };
    for (int i = 0; i < 4; i++)
        hosts[i] = agent_new_checker(y, names[i], names[i]);
    struct creation c;
    creation_begin(y, &c, FIXTURE_PATIENCE_MS);
    for (int i = 3; i > 0; i--) {
        int64_t check = check_of(hosts[i]);
        agent_say_problem(hosts[i], check, MISSING, true);
        agent_say_checked(hosts[i], check, ST_OK, "");
    }
    creation_end(&c);
    assert_int_equal(c.status, ST_OK);
    assert_string_equal(c.unchecked, "data.text.files[0]: open '/data': No such file or directory (on host host-d and "
                                     "host-c and host-b)");
    for (int i = 0; i < 4; i++)
        agent_free(hosts[i]);
}

static void a_check_that_did_not_end_well_is_made_again(void **state) {
    struct service_fixture *y = *state;
    struct agent *a = agent_new_checker(y, "a", "host-a");
    for (int i = 0; i < 2; i++) {
        struct creation c;
        creation_begin(y, &c, FIXTURE_PATIENCE_MS);
        agent_say_checked(a, check_of(a), ST_INTERNAL, "its worker died");
        creation_end(&c);
        assert_int_equal(c.status, ST_OK);
        assert_string_equal(c.unchecked, "the spec, by host host-a: its worker died");
    }
    agent_free(a);
}

static void a_first_problem_longer_than_the_sentence_is_cut(void **state) {
    struct service_fixture *y = *state;
    char directory[600];
    struct creation c = { .service = y,
                          .request = TRAINYARD__V1__CREATE_JOB_REQUEST__INIT,
                          .timeout_ms = FIXTURE_PATIENCE_MS };
    snprintf(directory, sizeof directory, "file:///%0400d", 0);
    memset(directory + strlen("file:///"), 'x', 400);
    c.request.spec = service_spec(8, 0); /* more ranks than slots: the second problem */
    Trainyard__V1__CheckpointSpec checkpoint = TRAINYARD__V1__CHECKPOINT_SPEC__INIT;
    checkpoint.directory = directory;
    c.request.spec->checkpoint = &checkpoint;
    create(&c);
    assert_int_equal(c.status, ST_INVALID_ARGUMENT);
    assert_memory_equal(c.why.msg, "checkpoint.directory: '/xxx", 27);
    const size_t n = strlen(c.why.msg);
    assert_true(n < sizeof c.why.msg && n > 400);
    assert_string_equal(c.why.msg + n - strlen(" (and 1 more)"), " (and 1 more)");
}

static void what_a_spec_cannot_be_anywhere_is_refused_by_one_host(void **state) {
    struct service_fixture *y = *state;
    struct agent *b = agent_new_checker(y, "b", "host-b"), *a = agent_new_checker(y, "a", "host-a");
    struct creation c;
    creation_begin(y, &c, FIXTURE_PATIENCE_MS);
    int64_t check = check_of(a);
    agent_say_problem(a, check, "parallel.pipeline: 8 stages are more than the 3 blocks", false);
    agent_say_checked(a, check, ST_OK, "");
    creation_end(&c);
    assert_int_equal(c.status, ST_INVALID_ARGUMENT);
    assert_string_equal(c.why.msg, "parallel.pipeline: 8 stages are more than the 3 blocks");
    assert_true(agent_idle(b));
    agent_free(a);
    agent_free(b);
}

static void good_for_a_minute(struct service_fixture *y, struct agent *a) {
    struct creation c;
    creation_begin(y, &c, FIXTURE_PATIENCE_MS);
    agent_say_checked(a, check_of(a), ST_OK, "");
    creation_end(&c);
    assert_int_equal(c.status, ST_OK);
}

static void a_sweep_asks_once_and_another_model_or_what_was_refused_again(void **state) {
    struct service_fixture *y = *state;
    struct agent *a = agent_new_checker(y, "a", "host-a");
    good_for_a_minute(y, a);
    Trainyard__V1__CreateJobRequest request = TRAINYARD__V1__CREATE_JOB_REQUEST__INIT;
    request.wait_for_hosts = true;
    ProtobufCMessage *reply;
    for (int i = 0; i < 20; i++) {
        request.spec = service_spec(8, i % 3);
        request.spec->name = "sweep";
        request.spec->train->seed = i;
        request.spec->train->steps = 10 + i;
        request.spec->train->optimizer->adamw->_lr_case = TRAINYARD__V1__ADAM_W___LR_LR;
        request.spec->train->optimizer->adamw->lr = 1e-4 * (i + 1);
        OK(service_call(y, "CreateJob", &request.base, &reply, &e));
        protobuf_c_message_free_unpacked(reply, NULL);
    }
    assert_true(agent_idle(a));
    for (int again = 0; again < 2; again++) { /* a refusal is not remembered */
        struct creation c = { .service = y, .request = request, .timeout_ms = FIXTURE_PATIENCE_MS };
        c.request.spec->train->global_batch = 16;
        assert_int_equal(pthread_create(&c.thread, NULL, create, &c), 0);
        int64_t check = check_of(a);
        agent_say_problem(a, check, MISSING, true);
        agent_say_checked(a, check, ST_OK, "");
        creation_end(&c);
        assert_int_equal(c.status, ST_INVALID_ARGUMENT);
    }
    agent_free(a);
}

static void clients_that_ask_at_once_share_one_check(void **state) {
    struct service_fixture *y = *state;
    struct agent *a = agent_new_checker(y, "a", "host-a");
    struct creation all[6];
    for (int i = 0; i < 6; i++)
        creation_begin(y, &all[i], FIXTURE_PATIENCE_MS);
    agent_say_checked(a, check_of(a), ST_OK, "");
    for (int i = 0; i < 6; i++) {
        creation_end(&all[i]);
        assert_int_equal(all[i].status, ST_OK);
    }
    assert_true(agent_idle(a));
    agent_free(a);
}

static void a_host_that_ends_or_does_not_answer_delays_no_job(void **state) {
    struct service_fixture *y = *state;
    struct agent *a = agent_new_checker(y, "a", "host-a");
    struct creation c;
    creation_begin(y, &c, FIXTURE_PATIENCE_MS);
    agent_expect(a, START_CHECK);
    agent_free(a);
    creation_end(&c);
    assert_int_equal(c.status, ST_OK);
    assert_string_equal(c.unchecked, "the spec, by host host-a: the executor went away");

    a = agent_new_checker(y, "silent", "host-b");
    creation_begin_of(y, &c, 16, 4000);
    int64_t check = check_of(a);
    creation_end(&c); /* within the call's own deadline */
    assert_int_equal(c.status, ST_OK);
    assert_string_equal(c.unchecked, "the spec, by host host-b: that took too long");
    assert_int_equal(agent_expect(a, STOP_CHECK)->stop_check->check, check);
    agent_free(a);
}

/* `a`, which attached last, would be asked first. Its row shows LEAVING when the controller has received the goodbye.
 */
static void an_executor_that_has_sent_a_goodbye_gets_no_check(void **state) {
    struct service_fixture *y = *state;
    struct agent *b = agent_new_checker(y, "b", "host-b"), *a = agent_new_checker(y, "a", "host-a");
    agent_say_goodbye(a);
    const deadline_ms_t deadline = deadline_in(FIXTURE_PATIENCE_MS);
    while (pg_number(y->conninfo, "SELECT count(*) FROM executor WHERE leaving") == 0)
        assert_true(clock_mono_ms() < deadline);
    struct creation c;
    creation_begin(y, &c, FIXTURE_PATIENCE_MS);
    agent_say_checked(b, check_of(b), ST_OK, "");
    creation_end(&c);
    assert_int_equal(c.status, ST_OK);
    assert_true(agent_idle(a));
    agent_free(a);
    agent_free(b);
}

/* Each host runs as many checks as it allows. */
static void a_spec_beyond_those_being_checked_is_answered_at_once(void **state) {
    struct service_fixture *y = *state;
    struct agent *hosts[SPEC_CHECK_MAX_CALLERS / SPEC_CHECK_MAX_PER_HOST];
    struct creation all[SPEC_CHECK_MAX_CALLERS], c;
    const int n = SPEC_CHECK_MAX_CALLERS / SPEC_CHECK_MAX_PER_HOST;
    char name[16];
    for (int i = 0; i < n; i++) {
        snprintf(name, sizeof name, "host-%d", i);
        hosts[i] = agent_new_checker(y, name, name);
    }
    int64_t checks[SPEC_CHECK_MAX_CALLERS];
    for (int i = 0; i < SPEC_CHECK_MAX_CALLERS; i++) { /* the one that attached last is asked first */
        creation_begin_of(y, &all[i], 8 * (i + 1), FIXTURE_PATIENCE_MS);
        checks[i] = check_of(hosts[n - 1 - i % n]);
    }
    creation_begin_of(y, &c, 8 * (SPEC_CHECK_MAX_CALLERS + 1), FIXTURE_PATIENCE_MS);
    creation_end(&c);
    assert_int_equal(c.status, ST_OK);
    assert_string_equal(c.unchecked, "other specs are being checked");
    Trainyard__V1__ValidateJobRequest request = TRAINYARD__V1__VALIDATE_JOB_REQUEST__INIT;
    ProtobufCMessage *reply;
    request.spec = service_spec(8, 0);
    request.wait_for_hosts = true;
    OK(service_call(y, "ValidateJob", &request.base, &reply, &e));
    const Trainyard__V1__ValidateJobResponse *answer = (const void *)reply;
    assert_int_equal(answer->n_problems, 0);
    assert_string_equal(answer->unchecked[0], "other specs are being checked");
    assert_string_equal(answer->plan_reason, "other specs are being checked");
    protobuf_c_message_free_unpacked(reply, NULL);
    for (int i = 0; i < SPEC_CHECK_MAX_CALLERS; i++)
        agent_say_checked(hosts[n - 1 - i % n], checks[i], ST_OK, "");
    for (int i = 0; i < SPEC_CHECK_MAX_CALLERS; i++) {
        creation_end(&all[i]);
        assert_int_equal(all[i].status, ST_OK);
    }
    creation_begin_of(y, &c, 8,
                      FIXTURE_PATIENCE_MS); /* the cached result, and then a new check: checks are admitted again */
    creation_end(&c);
    assert_string_equal(c.unchecked, "");
    creation_begin_of(y, &c, 8 * (SPEC_CHECK_MAX_CALLERS + 1), FIXTURE_PATIENCE_MS);
    agent_say_checked(hosts[n - 1], check_of(hosts[n - 1]), ST_OK, "");
    creation_end(&c);
    assert_string_equal(c.unchecked, "");
    for (int i = 0; i < n; i++)
        agent_free(hosts[i]);
}

static void a_job_with_skip_check_is_checked_on_no_host(void **state) {
    struct service_fixture *y = *state;
    struct agent *a = agent_new_checker(y, "a", "host-a");
    Trainyard__V1__CreateJobRequest request = TRAINYARD__V1__CREATE_JOB_REQUEST__INIT;
    request.spec = service_spec(8, 0);
    request.wait_for_hosts = request.skip_check = true;
    ProtobufCMessage *reply;
    OK(service_call(y, "CreateJob", &request.base, &reply, &e));
    protobuf_c_message_free_unpacked(reply, NULL);
    assert_true(agent_idle(a));
    agent_free(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(what_one_host_lacks_is_no_reason_where_another_has_it),
        FIXTURE_TEST(what_every_host_lacks_is_refused_with_their_names),
        FIXTURE_TEST(a_job_is_not_refused_while_a_host_is_unchecked),
        FIXTURE_TEST(what_the_hosts_that_were_asked_lack_refuses_nothing_while_there_are_more),
        FIXTURE_TEST(a_check_that_did_not_end_well_is_made_again),
        FIXTURE_TEST(a_first_problem_longer_than_the_sentence_is_cut),
        FIXTURE_TEST(what_a_spec_cannot_be_anywhere_is_refused_by_one_host),
        FIXTURE_TEST(a_sweep_asks_once_and_another_model_or_what_was_refused_again),
        FIXTURE_TEST(clients_that_ask_at_once_share_one_check),
        FIXTURE_TEST(a_host_that_ends_or_does_not_answer_delays_no_job),
        FIXTURE_TEST(an_executor_that_has_sent_a_goodbye_gets_no_check),
        FIXTURE_TEST(a_spec_beyond_those_being_checked_is_answered_at_once),
        FIXTURE_TEST(a_job_with_skip_check_is_checked_on_no_host),
    };
    return cmocka_run_group_tests_name("host check", tests, service_group_setup, service_group_teardown);
}
