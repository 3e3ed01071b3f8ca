/* Drained executors, as clients and agents see them. */
#include "tests/rpc/service_fixture.h"

#include <trainyard/v1/executor.pb-c.h>

#define EXECUTORS    &trainyard__v1__executor_service__descriptor
#define STATE(s)     TRAINYARD__V1__EXECUTOR__STATE__##s
#define JOB_STATE(s) TRAINYARD__V1__JOB__STATE__##s

static char last_reason[RPC_REASON_BYTES]; /* the machine-readable reason of the last refusal */

static status_t ask(struct service_fixture *y, const char *method, const ProtobufCMessage *request,
                    Trainyard__V1__Executor **ret, struct err *e) {
    ProtobufCMessage *reply = NULL;
    status_t st = rpc_call_unary_reason(y->channel, EXECUTORS, method, request, FIXTURE_PATIENCE_MS, &reply,
                                        last_reason, e);
    *ret = (Trainyard__V1__Executor *)reply;
    return st;
}

static status_t drain(struct service_fixture *y, const char *name, const char *reason, bool now,
                      Trainyard__V1__Executor **ret, struct err *e) {
    Trainyard__V1__DrainExecutorRequest in = TRAINYARD__V1__DRAIN_EXECUTOR_REQUEST__INIT;
    in.name = (char *)name;
    in.reason = (char *)reason;
    in.requester = (char *)"ops@desk";
    in.now = now;
    return ask(y, "DrainExecutor", &in.base, ret, e);
}

static status_t undrain(struct service_fixture *y, const char *name, Trainyard__V1__Executor **ret, struct err *e) {
    Trainyard__V1__UndrainExecutorRequest in = TRAINYARD__V1__UNDRAIN_EXECUTOR_REQUEST__INIT;
    in.name = (char *)name;
    return ask(y, "UndrainExecutor", &in.base, ret, e);
}

static void drained(struct service_fixture *y, const char *id, bool now, Trainyard__V1__Executor__State state) {
    Trainyard__V1__Executor *x;
    OK(drain(y, id, "new disk", now, &x, &e));
    assert_int_equal(x->state, state);
    assert_non_null(x->drain);
    assert_string_equal(x->drain->reason, "new disk");
    assert_string_equal(x->drain->requester, "ops@desk");
    assert_non_null(x->drain->time);
    assert_int_equal(x->drain->now, now);
    trainyard__v1__executor__free_unpacked(x, NULL);
}

static void undrained(struct service_fixture *y, const char *id) {
    Trainyard__V1__Executor *x;
    OK(undrain(y, id, &x, &e));
    assert_int_equal(x->state, STATE(ATTACHED));
    assert_null(x->drain);
    trainyard__v1__executor__free_unpacked(x, NULL);
}

/* Checks the list's only executor. */
static void assert_listed(struct service_fixture *y, Trainyard__V1__Executor__State state, bool marked) {
    Trainyard__V1__ListExecutorsRequest in = TRAINYARD__V1__LIST_EXECUTORS_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    OK(rpc_call_unary(y->channel, EXECUTORS, "ListExecutors", &in.base, FIXTURE_PATIENCE_MS, &reply, &e));
    const Trainyard__V1__ListExecutorsResponse *all = (const void *)reply;
    assert_int_equal(all->n_executors, 1);
    assert_int_equal(all->executors[0]->state, state);
    assert_int_equal(all->executors[0]->drain != NULL, marked);
    protobuf_c_message_free_unpacked(reply, NULL);
}

static void a_drained_executor_gets_the_next_job_when_it_is_undrained(void **state) {
    struct service_fixture *y = *state;
    struct agent *a = agent_new(y, "host-a", 1, 1);
    agent_attach(a, NULL);
    drained(y, "host-a", false, STATE(DRAINED));
    drained(y, "executors/host-a", false, STATE(DRAINED));
    int64_t job = service_submit(y, 1, 0);
    Trainyard__V1__Job *waits = service_job(y, job);
    assert_int_equal(waits->state, JOB_STATE(QUEUED));
    trainyard__v1__job__free_unpacked(waits, NULL);
    assert_true(agent_idle(a));
    undrained(y, "host-a");
    agent_expect(a, TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_START);
    undrained(y, "host-a");
    agent_free(a);
}

static void a_job_that_waits_for_a_drained_executor_reports_it(void **state) {
    struct service_fixture *y = *state;
    struct agent *a = agent_new(y, "host-a", 1, 1);
    agent_attach(a, NULL);
    int64_t job = service_submit(y, 2, 0);
    drained(y, "host-a", false, STATE(DRAINED));
    deadline_ms_t deadline = deadline_in(FIXTURE_PATIENCE_MS);
    for (bool said = false; !said;) {
        Trainyard__V1__Job *waits = service_job(y, job);
        said = strcmp(waits->reason, "needs 2 cpu slots, more than the 0 of all attached executors; 1 more is drained: "
                                     "executor host-a (new disk)") == 0;
        if (clock_mono_ms() > deadline)
            fail_msg("it says: %s", waits->reason);
        trainyard__v1__job__free_unpacked(waits, NULL);
    }
    agent_free(a);
}

static void running_ranks_continue_and_the_executor_is_draining_until_they_end(void **state) {
    struct service_fixture *y = *state;
    struct agent *a = agent_new(y, "host-a", 1, 1);
    agent_attach(a, NULL);
    int64_t job = service_submit(y, 1, 0);
    service_run(y, &a, 1, job, 1);
    drained(y, "host-a", false, STATE(DRAINING));
    assert_true(agent_idle(a));
    service_finish(&a, 1, job, 1);
    service_await_state(y, job, JOB_STATE(SUCCEEDED));
    assert_listed(y, STATE(DRAINED), true);
    agent_free(a);
}

static void a_job_that_must_leave_continues_on_another_host_without_a_restart(void **state) {
    struct service_fixture *y = *state;
    struct agent *a = agent_new(y, "host-a", 1, 1), *b = agent_new(y, "host-b", 1, 1);
    agent_attach(a, NULL);
    int64_t job = service_submit(y, 1, 0);
    service_run(y, &a, 1, job, 1);
    agent_attach(b, NULL);
    drained(y, "host-a", true, STATE(DRAINING));
    const Trainyard__V1__StopAttempt *stop = agent_expect(a, TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_STOP)->stop;
    assert_int_equal(stop->grace_ms, SCHEDULER_CHECKPOINT_GRACE_MS);
    assert_string_equal(stop->reason, "executor host-a is drained: new disk");
    service_await_state(y, job, JOB_STATE(PREEMPTING));
    agent_say_ended(a, job, 1, 0, TRAINYARD__V1__WORKER_END__CAUSE__STOPPED, 0);
    assert_int_equal(agent_expect(b, TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_START)->start->attempt, 2);
    Trainyard__V1__Job *moved = service_job(y, job);
    assert_int_equal(moved->restarts, 0);
    trainyard__v1__job__free_unpacked(moved, NULL);
    agent_free(a);
    agent_free(b);
}

static void the_next_controller_knows_it(void **state) {
    struct service_fixture *y = *state;
    struct agent *a = agent_new(y, "host-a", 1, 1);
    agent_attach(a, NULL);
    drained(y, "host-a", false, STATE(DRAINED));
    agent_free(a);
    service_stop_controller(y);
    service_start_controller(y);
    a = agent_new(y, "host-a", 2, 1);
    agent_attach(a, NULL);
    assert_listed(y, STATE(DRAINED), true);
    service_submit(y, 1, 0);
    undrained(y, "host-a"); /* after the submit in the loop's inbox: the submit has placed nothing */
    const Trainyard__V1__ControllerMessage *m = agent_expect(a, TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_START);
    assert_int_equal(m->start->attempt, 1);
    assert_int_equal(pg_number(y->conninfo, "SELECT count(*) FROM event WHERE kind = 'waiting'"), 1);
    agent_free(a);
}

/* The mark was written, and the controller died before it stopped any rank. */
static void the_next_controller_does_what_the_last_one_had_not(void **state) {
    struct service_fixture *y = *state;
    struct agent *a = agent_new(y, "host-a", 1, 1);
    agent_attach(a, NULL);
    int64_t job = service_submit(y, 1, 0);
    service_run(y, &a, 1, job, 1);
    service_stop_controller(y);
    agent_free(a);
    pg_run(y->conninfo, "UPDATE executor SET drain_time = now(), drain_now = true");
    service_start_controller(y);
    service_await_state(y, job, JOB_STATE(PREEMPTING));
}

static void a_lost_executor_is_also_listed_as_drained(void **state) {
    struct service_fixture *y = *state;
    struct agent *a = agent_new(y, "host-a", 1, 1);
    agent_attach(a, NULL);
    drained(y, "host-a", false, STATE(DRAINED));
    pg_run(y->conninfo, "UPDATE executor SET state = 2, lost_time = now(), detach_time = NULL");
    assert_listed(y, STATE(LOST), true);
    agent_free(a);
}

static void refused(status_t st, const struct err *e, status_t status, const char *reason, const char *text) {
    assert_int_equal(st, status);
    assert_non_null(strstr(e->msg, text));
    assert_string_equal(last_reason, reason);
}

static void an_unknown_executor_and_a_long_reason_are_refused(void **state) {
    struct service_fixture *y = *state;
    Trainyard__V1__Executor *x;
    struct err e;
    char much[502];
    refused(drain(y, "nobody", "", false, &x, &e), &e, ST_NOT_FOUND, "EXECUTOR_NOT_FOUND", "executors/nobody does not");
    refused(undrain(y, "nobody", &x, &e), &e, ST_NOT_FOUND, "EXECUTOR_NOT_FOUND", "executors/nobody does not exist");
    refused(drain(y, "", "", false, &x, &e), &e, ST_INVALID_ARGUMENT, "INVALID_ARGUMENT", "not the name of an");
    refused(undrain(y, "jobs/1", &x, &e), &e, ST_INVALID_ARGUMENT, "INVALID_ARGUMENT", "not the name of an executor");
    memset(much, 'x', sizeof much);
    much[501] = '\0';
    refused(drain(y, "nobody", much, false, &x, &e), &e, ST_INVALID_ARGUMENT, "INVALID_ARGUMENT",
            "reason: has more than 500 bytes");
    Trainyard__V1__DrainExecutorRequest in = TRAINYARD__V1__DRAIN_EXECUTOR_REQUEST__INIT;
    in.name = (char *)"nobody";
    in.requester = much;
    refused(ask(y, "DrainExecutor", &in.base, &x, &e), &e, ST_INVALID_ARGUMENT, "INVALID_ARGUMENT",
            "requester: has more than 200 bytes");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(a_drained_executor_gets_the_next_job_when_it_is_undrained),
        FIXTURE_TEST(a_job_that_waits_for_a_drained_executor_reports_it),
        FIXTURE_TEST(running_ranks_continue_and_the_executor_is_draining_until_they_end),
        FIXTURE_TEST(a_job_that_must_leave_continues_on_another_host_without_a_restart),
        FIXTURE_TEST(the_next_controller_knows_it),
        FIXTURE_TEST(the_next_controller_does_what_the_last_one_had_not),
        FIXTURE_TEST(a_lost_executor_is_also_listed_as_drained),
        FIXTURE_TEST(an_unknown_executor_and_a_long_reason_are_refused),
    };
    return cmocka_run_group_tests(tests, service_group_setup, service_group_teardown);
}
