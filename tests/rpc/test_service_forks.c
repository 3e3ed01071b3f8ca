/* Forks of jobs: when they are created, refused, and when they fail. */
#include "tests/rpc/service_fixture.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define STATE(s) TRAINYARD__V1__JOB__STATE__##s

/* Creates a fork of jobs/1 with this number of steps, under a request id. `name` receives its name. */
static status_t fork_first(struct service_fixture *y, const char *request_id, char name[64], struct err *e) {
    Trainyard__V1__CreateJobRequest request = TRAINYARD__V1__CREATE_JOB_REQUEST__INIT;
    request.wait_for_hosts = true;
    request.spec = service_spec(1, 0);
    request.spec->train->steps = 20;
    request.request_id = (char *)request_id;
    request.fork = "1";
    ProtobufCMessage *reply = NULL;
    TRY(service_call(y, "CreateJob", &request.base, &reply, e));
    const Trainyard__V1__Job *job = (const void *)reply;
    snprintf(name, 64, "%s", job->name);
    assert_string_equal(job->forked_from, "jobs/1/checkpoints/1");
    protobuf_c_message_free_unpacked(reply, NULL);
    return ST_OK;
}

static void a_fork_is_made_once_and_not_retried_when_what_it_began_with_is_gone(void **state) {
    struct service_fixture *y = *state;
    struct agent *a = agent_new(y, "host-a", 1, 1);
    agent_attach(a, NULL);
    int64_t parent = service_submit(y, 1, 0), fork = parent + 1;
    service_run(y, &a, 1, parent, 1);
    service_finish(&a, 1, parent, 1);
    service_await_state(y, parent, STATE(SUCCEEDED));
    char names[3][64];
    OK(fork_first(y, "6f1e0d52-7c0e-4a44-9f07-0f8a3f1b2c01", names[0], &e));
    OK(fork_first(y, "6f1e0d52-7c0e-4a44-9f07-0f8a3f1b2c01", names[1], &e));
    service_run(y, &a, 1, fork, 1);
    agent_say_ended(a, fork, 1, 0, TRAINYARD__V1__WORKER_END__CAUSE__BAD_SPEC, 0);
    service_await_state(y, fork, STATE(FAILED));
    pg_force(y->conninfo, "UPDATE checkpoint SET state = 5, delete_time = now()");
    OK(fork_first(y, "6f1e0d52-7c0e-4a44-9f07-0f8a3f1b2c01", names[2], &e));
    assert_string_equal(names[0], "jobs/2");
    assert_string_equal(names[1], "jobs/2");
    assert_string_equal(names[2], "jobs/2");
    FAILS(fork_first(y, "6f1e0d52-7c0e-4a44-9f07-0f8a3f1b2c02", names[0], &e), ST_NOT_FOUND,
          "fork: jobs/1 has no committed checkpoint");
    FAILS(service_call_by_name(y, "RetryJob", "2", &e), ST_FAILED_PRECONDITION,
          "jobs/2 has nothing to resume from: jobs/1/checkpoints/1, which it began with, has been deleted");
    assert_string_equal(service_last_reason, "JOB_ORIGIN_GONE");
    service_assert_job(y, fork, STATE(FAILED), 1, 0);
    agent_free(a);
}

static void a_fork_of_another_model_or_data_is_refused_before_it_has_an_id(void **state) {
    struct service_fixture *y = *state;
    struct agent *a = agent_new(y, "host-a", 1, 1);
    agent_attach(a, NULL);
    int64_t parent = service_submit(y, 1, 0);
    service_run(y, &a, 1, parent, 1);
    service_finish(&a, 1, parent, 1);
    service_await_state(y, parent, STATE(SUCCEEDED));
    Trainyard__V1__CreateJobRequest create = TRAINYARD__V1__CREATE_JOB_REQUEST__INIT;
    Trainyard__V1__ValidateJobRequest validate = TRAINYARD__V1__VALIDATE_JOB_REQUEST__INIT;
    create.spec = validate.spec = service_spec(1, 0);
    create.fork = validate.fork = "1";
    create.spec->train->steps = 20;
    create.spec->model->gpt->width *= 2;
    create.spec->data->text->_validation_fraction_case =
        TRAINYARD__V1__TEXT_DATA___VALIDATION_FRACTION_VALIDATION_FRACTION;
    create.spec->data->text->validation_fraction = 0.3;
    ProtobufCMessage *reply;
    FAILS(service_call(y, "CreateJob", &create.base, &reply, &e), ST_INVALID_ARGUMENT,
          "data.text.validation_fraction: 0.3, but job 1 has 0.1: a fork keeps the data of its origin");

    OK(service_call(y, "ValidateJob", &validate.base, &reply, &e));
    const Trainyard__V1__ValidateJobResponse *told = (const void *)reply;
    assert_int_equal(told->n_problems, 2);
    assert_null(told->resolved);
    protobuf_c_message_free_unpacked(reply, NULL);
    assert_int_equal(pg_number(y->conninfo, "SELECT count(*) FROM job"), 1);
    agent_free(a);
}

/* For example, the parent's restart finds the bad checkpoint while the fork waits for a slot. */
static void a_fork_whose_origin_is_found_corrupt_fails_before_it_starts_and_frees_its_slot(void **state) {
    struct service_fixture *y = *state;
    struct agent *a = agent_new(y, "host-a", 1, 1);
    agent_attach(a, NULL);
    int64_t parent = service_submit(y, 1, 0), fork = parent + 1;
    service_run(y, &a, 1, parent, 1);
    service_finish(&a, 1, parent, 1);
    service_await_state(y, parent, STATE(SUCCEEDED));
    agent_free(a); /* this removes its slot */
    pg_force(y->conninfo, "UPDATE executor SET state = 2, lost_time = now(), detach_time = NULL");
    service_stop_controller(y);
    service_start_controller(y);
    char name[64];
    OK(fork_first(y, "", name, &e));
    int64_t next = service_submit(y, 1, 0);
    pg_force(y->conninfo, "UPDATE checkpoint SET state = 3, reason = 'bits'");
    a = agent_new(y, "host-b", 1, 1);
    agent_attach(a, NULL);
    assert_int_equal(agent_expect(a, TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_START)->start->job, next);
    service_await_state(y, fork, STATE(FAILED));
    Trainyard__V1__Job *job = service_job(y, fork);
    assert_string_equal(job->reason, "jobs/2 has nothing to resume from: jobs/1/checkpoints/1, which it began with, is "
                                     "corrupt, and it has no checkpoint of its own");
    trainyard__v1__job__free_unpacked(job, NULL);
    agent_free(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(a_fork_whose_origin_is_found_corrupt_fails_before_it_starts_and_frees_its_slot),
        FIXTURE_TEST(a_fork_of_another_model_or_data_is_refused_before_it_has_an_id),
        FIXTURE_TEST(a_fork_is_made_once_and_not_retried_when_what_it_began_with_is_gone),
    };
    return cmocka_run_group_tests(tests, service_group_setup, service_group_teardown);
}
