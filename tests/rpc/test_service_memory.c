/* A controller on a machine that has no memory for what it is told, and has it a moment later: nothing is lost. */
#include "tests/rpc/service_yard.h"

#include <stdatomic.h>
#include <stdlib.h>

#define STATE(s)   TRAINYARD__V1__JOB__STATE__##s
#define MESSAGE(m) TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_##m

/* Each event but a heartbeat is refused when the scheduler is first told of it. */
static atomic_bool each_event_is_refused_first;
status_t __real_scheduler_step(struct scheduler *s, const struct scheduler_event *ev, int64_t now_ms,
                               struct scheduler_actions *ret, struct err *e);
status_t __wrap_scheduler_step(struct scheduler *s, const struct scheduler_event *ev, int64_t now_ms,
                               struct scheduler_actions *ret, struct err *e);
status_t __wrap_scheduler_step(struct scheduler *s, const struct scheduler_event *ev, int64_t now_ms,
                               struct scheduler_actions *ret, struct err *e) {
    static bool again; /* the loop's thread alone comes here */
    again = !again;
    if (again && ev->kind != EV_EXECUTOR_HEARD && each_event_is_refused_first)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory at first");
    return __real_scheduler_step(s, ev, now_ms, ret, e);
}

/* The next array of two elements of that many bytes is refused. */
static atomic_size_t refused;
void *__real_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_calloc(size_t n, size_t size) {
    size_t this = size;
    return n == 2 && size && atomic_compare_exchange_strong(&refused, &this, 0) ? NULL : __real_calloc(n, size);
}

static int reset(void **state) {
    each_event_is_refused_first = false;
    refused = 0;
    return yard_setup(state);
}

static void an_event_that_finds_no_memory_is_told_again_until_it_does(void **state) {
    struct service_yard *y = *state;
    struct agent *agents[] = { agent_new(y, "host-a", 1, 1), agent_new(y, "host-b", 1, 1) };
    each_event_is_refused_first = true;
    agent_attach(agents[0], NULL);
    agent_attach(agents[1], NULL);
    const int64_t job = yard_submit(y, 2, 0);
    yard_run(y, agents, 2, job, 1);
    yard_finish(agents, 2, job, 1);
    yard_await_state(y, job, STATE(SUCCEEDED));
    yard_submit(y, 8, 0); /* more than there are slots */
    Trainyard__V1__CancelJobRequest request = TRAINYARD__V1__CANCEL_JOB_REQUEST__INIT;
    ProtobufCMessage *reply = NULL;
    request.name = "jobs/2";
    OK(yard_call(y, "CancelJob", &request.base, &reply, &e));
    assert_int_equal(((Trainyard__V1__Job *)(void *)reply)->state, STATE(CANCELLED));
    protobuf_c_message_free_unpacked(reply, NULL);
    agent_free(agents[0]);
    agent_free(agents[1]);
}

/* What an agent says of one attempt that has ended. */
struct told {
    Trainyard__V1__RankEnd end, *ends;
    Trainyard__V1__AttemptEnded ended;
    Trainyard__V1__AttemptStatus status;
};

static void tell_ended(struct told *ret, int64_t job, Trainyard__V1__WorkerEnd__Cause cause, int64_t last_sequence) {
    trainyard__v1__rank_end__init(&ret->end);
    trainyard__v1__attempt_ended__init(&ret->ended);
    trainyard__v1__attempt_status__init(&ret->status);
    ret->ends = &ret->end;
    ret->end.cause = cause;
    ret->end.last_sequence = last_sequence;
    ret->end.time_us = 1;
    ret->ended.job = ret->status.job = job;
    ret->ended.attempt = ret->status.attempt = 1;
    ret->ended.ranks = &ret->ends;
    ret->ended.n_ranks = 1;
    ret->status.ended = true;
    ret->status.end = &ret->ended;
}

static void the_end_of_ranks_that_finds_no_memory_is_told_again_when_their_agent_attaches(void **state) {
    struct service_yard *y = *state;
    struct agent *a = agent_new(y, "host-a", 1, 1);
    agent_attach(a, NULL);
    const int64_t job = yard_submit(y, 1, 0);
    yard_run(y, &a, 1, job, 1);
    agent_report_end(a, job, 1, 0, 1);
    refused = sizeof(struct rank_end);
    agent_say_ended(a, job, 1, 0, TRAINYARD__V1__WORKER_END__CAUSE__FINISHED, 3);
    assert_non_null(strstr(agent_await_closed(a), "no memory for how ranks ended"));
    agent_free(a);

    struct told told;
    tell_ended(&told, job, TRAINYARD__V1__WORKER_END__CAUSE__FINISHED, 3);
    a = agent_new(y, "host-a", 1, 1);
    agent_attach(a, &told.status);
    yard_await_state(y, job, STATE(SUCCEEDED));
    agent_free(a);
}

static void attempts_of_a_hello_that_find_no_memory_are_told_again(void **state) {
    struct service_yard *y = *state;
    const size_t parts[] = { sizeof(struct scheduler_part_report), sizeof(struct rank_end) };
    struct agent *a = agent_new(y, "host-a", 1, 1);
    agent_attach(a, NULL);
    const int64_t job = yard_submit(y, 1, 0);
    yard_run(y, &a, 1, job, 1);
    agent_free(a);

    struct told told;
    tell_ended(&told, job, TRAINYARD__V1__WORKER_END__CAUSE__AGENT_LOST, 0);
    for (size_t i = 0; i < 2; i++) {
        a = agent_new(y, "host-a", 2, 1);
        refused = parts[i];
        agent_hello(a, &told.status);
        assert_non_null(strstr(agent_await_closed(a), "no memory for what the executor tells of its attempts"));
        agent_free(a);
    }
    a = agent_new(y, "host-a", 2, 1);
    agent_attach(a, &told.status);
    agent_expect(a, MESSAGE(STOP));
    agent_expect(a, MESSAGE(ACKNOWLEDGED));
    yard_run(y, &a, 1, job, 2);
    agent_free(a);
}

#define YARD(name) cmocka_unit_test_setup_teardown(name, reset, yard_teardown)

int main(void) {
    const struct CMUnitTest tests[] = {
        YARD(an_event_that_finds_no_memory_is_told_again_until_it_does),
        YARD(the_end_of_ranks_that_finds_no_memory_is_told_again_when_their_agent_attaches),
        YARD(attempts_of_a_hello_that_find_no_memory_are_told_again),
    };
    return cmocka_run_group_tests(tests, yard_group_setup, yard_group_teardown);
}
