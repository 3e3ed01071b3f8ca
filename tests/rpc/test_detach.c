/* Executors whose stream has ended, or whose agents send a goodbye, as clients and other agents see them. */
#include "tests/rpc/service_fixture.h"

#include <trainyard/v1/executor.pb-c.h>

#define STATE(s)     TRAINYARD__V1__EXECUTOR__STATE__##s
#define JOB_STATE(s) TRAINYARD__V1__JOB__STATE__##s
#define ORDER(kind)  TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_##kind

/* Waits until the list shows this state of the executor. */
static void await_listed(struct service_fixture *y, const char *id, Trainyard__V1__Executor__State state) {
    deadline_ms_t deadline = deadline_in(FIXTURE_PATIENCE_MS);
    for (bool told = false; !told;) {
        Trainyard__V1__ListExecutorsRequest in = TRAINYARD__V1__LIST_EXECUTORS_REQUEST__INIT;
        ProtobufCMessage *reply;
        OK(rpc_call_unary(y->channel, &trainyard__v1__executor_service__descriptor, "ListExecutors", &in.base,
                          FIXTURE_PATIENCE_MS, &reply, &e));
        const Trainyard__V1__ListExecutorsResponse *list = (const void *)reply;
        for (size_t i = 0; i < list->n_executors; i++) {
            const Trainyard__V1__Executor *x = list->executors[i];
            if (strcmp(x->name + strlen("executors/"), id) != 0)
                continue;
            told = x->state == state;
            if (x->state == STATE(LOST) && state != STATE(LOST))
                fail_msg("%s was lost, for want of a heartbeat, before it was told as %d", id, (int)state);
            assert_true((x->detach_time != NULL) == (x->state == STATE(DISCONNECTED) || x->state == STATE(LEAVING)));
        }
        protobuf_c_message_free_unpacked(reply, NULL);
        assert_true(clock_mono_ms() < deadline);
    }
}

static void a_job_runs_elsewhere_at_once_when_a_stream_has_ended(void **state) {
    struct service_fixture *y = *state;
    struct agent *first = agent_new(y, "host-a", 1, 1), *second = agent_new(y, "host-b", 1, 1);
    agent_attach_alive(first);
    agent_attach_alive(second);
    agent_free(first); /* like the kernel for a killed agent */
    await_listed(y, "host-a", STATE(DISCONNECTED));
    const int64_t job = service_submit(y, 1, 0); /* of two free hosts, the first would get it */
    const Trainyard__V1__AttemptStart *start = agent_expect(second, ORDER(START))->start;
    assert_int_equal(start->job, job);
    assert_int_equal(start->attempt, 1);
    first = agent_new(y, "host-a", 2, 1);
    agent_attach_alive(first);
    await_listed(y, "host-a", STATE(ATTACHED));
    const int64_t next = service_submit(y, 1, 0);
    assert_int_equal(agent_expect(first, ORDER(START))->start->job, next);
    agent_free(first);
    agent_free(second);
}

static void an_executor_that_sends_a_goodbye_gets_no_job_and_is_lost_when_it_has_ended(void **state) {
    struct service_fixture *y = *state;
    struct agent *first = agent_new(y, "host-a", 1, 1), *second = agent_new(y, "host-b", 1, 1);
    agent_attach_alive(first);
    agent_attach_alive(second);
    agent_say_goodbye(first);
    await_listed(y, "host-a", STATE(LEAVING));
    const int64_t job = service_submit(y, 1, 0);
    assert_int_equal(agent_expect(second, ORDER(START))->start->job, job);
    assert_true(agent_idle(first));
    agent_free(first);
    await_listed(y, "host-a", STATE(LOST));
    assert_int_equal(pg_number(y->conninfo, "SELECT count(*) FROM executor WHERE reason = 'its agent was stopped'"), 1);
    agent_free(second);
}

/* The hello and the end of its stream may both wait while the loop is blocked. The end must not be lost. */
static void a_stream_that_ends_before_its_hello_is_handled_leaves_no_executor_attached(void **state) {
    struct service_fixture *y = *state;
    struct agent *first = agent_new(y, "host-a", 1, 1), *second;
    agent_attach_alive(first);
    struct pg_open *open = pg_begin(y->conninfo, "SELECT 1 FROM executor FOR UPDATE");
    agent_free(first);
    pg_await_blocked(y->pg, y->conninfo, 1);
    first = agent_new(y, "host-a", 2, 1);
    agent_hello(first, NULL);
    struct controller_stats stats = { 0 };
    for (deadline_ms_t deadline = deadline_in(FIXTURE_PATIENCE_MS); stats.attached < 1;) {
        assert_true(clock_mono_ms() < deadline);
        controller_stats(y->controller, &stats);
    }
    agent_free(first);
    while (stats.attached > 0)
        controller_stats(y->controller, &stats);
    pg_commit(open);
    await_listed(y, "host-a", STATE(DISCONNECTED));
    second = agent_new(y, "host-b", 1, 1);
    agent_attach_alive(second);
    const int64_t job = service_submit(y, 1, 0);
    assert_int_equal(agent_expect(second, ORDER(START))->start->job, job);
    agent_free(second);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(a_job_runs_elsewhere_at_once_when_a_stream_has_ended),
        FIXTURE_TEST(an_executor_that_sends_a_goodbye_gets_no_job_and_is_lost_when_it_has_ended),
        FIXTURE_TEST(a_stream_that_ends_before_its_hello_is_handled_leaves_no_executor_attached),
    };
    return cmocka_run_group_tests_name("away", tests, service_group_setup, service_group_teardown);
}
