/* Secrets on their way through a controller: into start orders of executors that know them, as they are stored then. */
#include "service/controller/keyring.h"
#include "tests/rpc/service_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <trainyard/v1/secret.pb-c.h>
#include <unistd.h>

#define START    TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_START
#define STATE(s) TRAINYARD__V1__JOB__STATE__##s

static char key_files[2][64];
static char *features[] = { (char *)"code", (char *)"secrets" };

static int setup(void **state) {
    struct service_fixture *y = *state;
    for (int i = 0; i < 2; i++) {
        snprintf(key_files[i], sizeof key_files[i], "/tmp/service-secrets-%d-%d", (int)getpid(), i);
        unlink(key_files[i]);
        OK(keyring_make_file(key_files[i], &e));
    }
    y->secret_keys[0] = key_files[0];
    y->secret_keys[1] = NULL;
    return service_setup(state);
}

static int teardown(void **state) {
    unlink(key_files[0]);
    unlink(key_files[1]);
    return service_teardown(state);
}

static status_t call(struct service_fixture *y, const char *method, const ProtobufCMessage *request,
                     ProtobufCMessage **ret, struct err *e) {
    return rpc_call_unary(y->channel, &trainyard__v1__secret_service__descriptor, method, request, FIXTURE_PATIENCE_MS,
                          ret, e);
}

static void set(struct service_fixture *y, const char *name, const char *value) {
    Trainyard__V1__SetSecretRequest request = TRAINYARD__V1__SET_SECRET_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    request.name = (char *)(uintptr_t)name;
    request.value = (ProtobufCBinaryData){ .data = (uint8_t *)(uintptr_t)value, .len = strlen(value) };
    OK(call(y, "SetSecret", &request.base, &reply, &e));
    assert_int_equal(((Trainyard__V1__Secret *)reply)->bytes, strlen(value));
    protobuf_c_message_free_unpacked(reply, NULL);
}

static void delete (struct service_fixture *y, const char *name) {
    Trainyard__V1__DeleteSecretRequest request = TRAINYARD__V1__DELETE_SECRET_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    request.name = (char *)(uintptr_t)name;
    OK(call(y, "DeleteSecret", &request.base, &reply, &e));
    protobuf_c_message_free_unpacked(reply, NULL);
}

static status_t create(struct service_fixture *y, const char *secret, int64_t *ret_job, struct err *e) {
    static char *command[] = { (char *)"/bin/true" };
    Trainyard__V1__ProgramSpec program = TRAINYARD__V1__PROGRAM_SPEC__INIT;
    Trainyard__V1__ProgramSpec__SecretsEntry entry = TRAINYARD__V1__PROGRAM_SPEC__SECRETS_ENTRY__INIT;
    Trainyard__V1__ProgramSpec__SecretsEntry *entries[] = { &entry };
    Trainyard__V1__JobSpec spec = TRAINYARD__V1__JOB_SPEC__INIT;
    Trainyard__V1__CreateJobRequest request = TRAINYARD__V1__CREATE_JOB_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    entry.key = (char *)"TOKEN";
    entry.value = (char *)(uintptr_t)secret;
    program.command = command;
    program.n_command = 1;
    program.secrets = entries;
    program.n_secrets = 1;
    spec.name = (char *)"secretive";
    spec.program = &program;
    request.spec = &spec;
    request.wait_for_hosts = request.skip_check = true;
    TRY(service_call(y, "CreateJob", &request.base, &reply, e));
    *ret_job = atoll(((Trainyard__V1__Job *)reply)->name + strlen("jobs/"));
    protobuf_c_message_free_unpacked(reply, NULL);
    return ST_OK;
}

static int64_t submit(struct service_fixture *y, const char *secret) {
    int64_t job = 0;
    OK(create(y, secret, &job, &e));
    return job;
}

static struct agent *agent_with(struct service_fixture *y, const char *id, int64_t incarnation, size_t n_features) {
    struct agent *a = agent_new(y, id, incarnation, 1);
    agent_set_features(a, features, n_features);
    agent_attach_alive(a);
    return a;
}

static void assert_order(struct agent *a, int64_t job, int attempt, const char *value) {
    const Trainyard__V1__AttemptStart *start = agent_expect(a, START)->start;
    assert_int_equal(start->job, job);
    assert_int_equal(start->attempt, attempt);
    assert_int_equal(start->n_secrets, 1);
    assert_string_equal(start->secrets[0]->variable, "TOKEN");
    assert_int_equal(start->secrets[0]->value.len, strlen(value));
    assert_memory_equal(start->secrets[0]->value.data, value, strlen(value));
    assert_string_equal(start->spec->program->secrets[0]->value, "HUB"); /* the spec has names only */
}

static void an_executor_gets_the_values_of_its_ranks_and_an_older_one_gets_no_such_job(void **state) {
    struct service_fixture *y = *state;
    set(y, "HUB", "the value");
    struct agent *old = agent_with(y, "old", 1, 1); /* "code" only */
    const int64_t job = submit(y, "HUB");
    Trainyard__V1__ExplainJobRequest request = TRAINYARD__V1__EXPLAIN_JOB_REQUEST__INIT;
    char name[40];
    ProtobufCMessage *reply = NULL;
    snprintf(name, sizeof name, "jobs/%lld", (long long)job);
    request.name = name;
    OK(service_call(y, "ExplainJob", &request.base, &reply, &e));
    const Trainyard__V1__ExplainJobResponse *x = (void *)reply;
    assert_int_equal(x->executors[0]->verdict, TRAINYARD__V1__EXECUTOR_VERDICT__VERDICT__LACKS);
    assert_string_equal(x->executors[0]->message, "it does not offer 'secrets', which the job needs");
    assert_int_equal(x->reasons[1]->kind, TRAINYARD__V1__WAIT_REASON__KIND__LACKING);
    protobuf_c_message_free_unpacked(reply, NULL);
    struct agent *new = agent_with(y, "new", 1, 2);
    assert_order(new, job, 1, "the value");
    assert_true(agent_idle(old));
    agent_free(old);
    agent_free(new);
}

static void what_a_job_needs_survives_a_change_of_the_leader(void **state) {
    struct service_fixture *y = *state;
    set(y, "HUB", "the value");
    const int64_t job = submit(y, "HUB");
    service_stop_controller(y);
    service_start_controller(y);
    struct agent *old = agent_with(y, "old", 1, 1);
    struct agent *new = agent_with(y, "new", 1, 2);
    assert_order(new, job, 1, "the value");
    assert_true(agent_idle(old));
    agent_free(old);
    agent_free(new);
}

static void an_order_that_is_sent_again_by_another_leader_has_the_secrets_too(void **state) {
    struct service_fixture *y = *state;
    set(y, "HUB", "the value");
    struct agent *a = agent_with(y, "a", 1, 2);
    const int64_t job = submit(y, "HUB");
    assert_order(a, job, 1, "the value");
    agent_free(a); /* it has not started the rank */
    service_stop_controller(y);
    service_start_controller(y);
    a = agent_with(y, "a", 2, 2);
    assert_order(a, job, 1, "the value");
    agent_free(a);
}

static void a_retry_without_the_secret_fails_at_once_and_with_it_gets_the_new_value(void **state) {
    struct service_fixture *y = *state;
    set(y, "HUB", "first");
    int64_t job = submit(y, "HUB");
    delete (y, "HUB");
    struct agent *a = agent_with(y, "a", 1, 2);
    service_await_state(y, job, STATE(FAILED));
    Trainyard__V1__Job *row = service_job(y, job);
    assert_string_equal(row->reason, "program.secrets.TOKEN: there is no secret 'HUB': set it with 'trainyard secret "
                                     "set HUB'");
    trainyard__v1__job__free_unpacked(row, NULL);
    assert_true(agent_idle(a));
    char name[40];
    snprintf(name, sizeof name, "jobs/%lld", (long long)job);
    set(y, "HUB", "second");
    OK(service_call_by_name(y, "RetryJob", name, &e));
    assert_order(a, job, 2, "second");
    agent_free(a);
}

static void a_controller_without_the_key_lets_the_job_wait_for_one_that_has_it(void **state) {
    struct service_fixture *y = *state;
    set(y, "HUB", "value");
    const int64_t job = submit(y, "HUB");
    service_stop_controller(y);
    y->secret_keys[0] = key_files[1];
    service_start_controller(y);
    struct agent *a = agent_with(y, "a", 1, 2);
    service_await_state(y, job, STATE(RESTARTING));
    Trainyard__V1__Job *row = service_job(y, job);
    if (!strstr(row->reason, "program.secrets.TOKEN: the secret 'HUB' is encrypted with the key "))
        fail_msg("%s", row->reason);
    assert_int_equal(row->restarts, 0);
    trainyard__v1__job__free_unpacked(row, NULL);
    Trainyard__V1__ExplainJobRequest request = TRAINYARD__V1__EXPLAIN_JOB_REQUEST__INIT;
    char name[40];
    ProtobufCMessage *reply = NULL;
    snprintf(name, sizeof name, "jobs/%lld", (long long)job);
    request.name = name;
    service_await_state(y, job, STATE(RESTARTING));
    OK(service_call(y, "ExplainJob", &request.base, &reply, &e));
    const Trainyard__V1__ExplainJobResponse *x = (void *)reply;
    bool said = false;
    for (size_t i = 0; i < x->n_reasons; i++)
        said |= strstr(x->reasons[i]->message, "which this controller does not have") != NULL;
    assert_true(said);
    protobuf_c_message_free_unpacked(reply, NULL);
    agent_free(a);
    service_stop_controller(y);
    y->secret_keys[0] = key_files[0];
    service_start_controller(y);
    const int attempts = (int)pg_number(y->conninfo, "SELECT max(number) FROM attempt");
    a = agent_with(y, "a", 2, 2);
    assert_order(a, job, attempts + 1, "value");
    row = service_job(y, job);
    assert_int_equal(row->restarts, 0);
    trainyard__v1__job__free_unpacked(row, NULL);
    agent_free(a);
}

static void an_order_that_cannot_be_sent_again_ends_its_attempt_with_the_reason(void **state) {
    struct service_fixture *y = *state;
    set(y, "HUB", "the value");
    struct agent *a = agent_with(y, "a", 1, 2);
    const int64_t job = submit(y, "HUB");
    assert_order(a, job, 1, "the value");
    agent_free(a); /* it has not started the rank */
    service_stop_controller(y);
    service_start_controller(y);
    delete (y, "HUB");
    a = agent_with(y, "a", 2, 2);
    service_await_state(y, job, STATE(FAILED)); /* without the ten minutes that a start may take */
    Trainyard__V1__Job *row = service_job(y, job);
    assert_string_equal(row->reason, "program.secrets.TOKEN: there is no secret 'HUB': set it with 'trainyard secret "
                                     "set HUB'");
    trainyard__v1__job__free_unpacked(row, NULL);
    assert_int_equal(pg_number(y->conninfo, "SELECT count(*) FROM attempt WHERE number = 1 AND reason LIKE '%there is "
                                            "no secret ''HUB''%'"),
                     1);
    agent_free(a);
}

static void a_job_is_refused_whose_secrets_are_missing_or_too_large_together(void **state) {
    struct service_fixture *y = *state;
    int64_t job;
    FAILS(create(y, "HUB", &job, &e), ST_INVALID_ARGUMENT,
          "program.secrets.TOKEN: there is no secret 'HUB': set it with 'trainyard secret set HUB'");
    assert_int_equal(pg_number(y->conninfo, "SELECT count(*) FROM job"), 0);
}

#define SECRETS_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        SECRETS_TEST(an_executor_gets_the_values_of_its_ranks_and_an_older_one_gets_no_such_job),
        SECRETS_TEST(what_a_job_needs_survives_a_change_of_the_leader),
        SECRETS_TEST(an_order_that_is_sent_again_by_another_leader_has_the_secrets_too),
        SECRETS_TEST(a_retry_without_the_secret_fails_at_once_and_with_it_gets_the_new_value),
        SECRETS_TEST(a_controller_without_the_key_lets_the_job_wait_for_one_that_has_it),
        SECRETS_TEST(an_order_that_cannot_be_sent_again_ends_its_attempt_with_the_reason),
        SECRETS_TEST(a_job_is_refused_whose_secrets_are_missing_or_too_large_together),
    };
    return cmocka_run_group_tests(tests, service_group_setup, service_group_teardown);
}
