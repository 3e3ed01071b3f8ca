/* What an agent says about a rank counts only if the rank is placed on its executor. */
#include "tests/rpc/service_fixture.h"

#define STATE(s)    TRAINYARD__V1__JOB__STATE__##s
#define ORDER(kind) TRAINYARD__V1__CONTROLLER_MESSAGE__MESSAGE_##kind

/* The acknowledgement of the last message shows that the loop has handled all of them. */
static void say_all_about(struct agent *stranger, int64_t job, int ranks) {
    for (int r = 0; r < ranks; r++) {
        agent_say_started(stranger, job, 1, r, 4711);
        agent_say_offer(stranger, job, 1, r, "an address of the stranger");
        agent_say_ready(stranger, job, 1, r);
        agent_say_ended(stranger, job, 1, r, TRAINYARD__V1__WORKER_END__CAUSE__FINISHED, 3);
        agent_expect(stranger, ORDER(ACKNOWLEDGED));
    }
}

static void an_agent_can_neither_start_nor_address_nor_join_nor_end_a_rank_of_another_executor(void **state) {
    struct service_fixture *y = *state;
    struct agent *agents[] = { agent_new(y, "a", 1, 1), agent_new(y, "b", 1, 1) };
    struct agent *stranger = agent_new(y, "stranger", 1, 0);
    agent_attach_alive(agents[0]);
    agent_attach_alive(agents[1]);
    agent_attach_alive(stranger);
    const int64_t job = service_submit(y, 2, 0);
    service_await_state(y, job, STATE(STARTING));
    say_all_about(stranger, job, 2);
    service_assert_job(y, job, STATE(STARTING), 1, 0);
    service_run(y, agents, 2, job, 1); /* with the addresses of the ranks */
    assert_int_equal(pg_number(y->conninfo, "SELECT count(*) FROM placement WHERE pid IS NOT NULL OR end_time IS NOT "
                                            "NULL"),
                     0);
    say_all_about(stranger, job, 2);
    assert_true(agent_idle(agents[0]) && agent_idle(agents[1])); /* no rank ended, and none was stopped */
    agent_say_started(agents[1], job, 1, 1, 4712);
    const deadline_ms_t deadline = deadline_in(FIXTURE_PATIENCE_MS);
    while (pg_number(y->conninfo, "SELECT coalesce(sum(pid), 0) FROM placement") != 4712) /* at the next tick */
        assert_true(clock_mono_ms() < deadline);
    service_finish(agents, 2, job, 1);
    service_await_state(y, job, STATE(SUCCEEDED));
    agent_free(agents[0]);
    agent_free(agents[1]);
    agent_free(stranger);
}

/* A stranger that attaches again reports the ranks as its own, with addresses. */
static void a_hello_gives_a_gang_no_address_of_a_rank_of_another_executor(void **state) {
    struct service_fixture *y = *state;
    struct agent *agents[] = { agent_new(y, "a", 1, 1), agent_new(y, "b", 1, 1) };
    struct agent *stranger = agent_new(y, "stranger", 1, 0);
    agent_attach_alive(agents[0]);
    agent_attach_alive(agents[1]);
    const int64_t job = service_submit(y, 2, 0);
    service_await_state(y, job, STATE(STARTING));
    Trainyard__V1__RankStatus rank = TRAINYARD__V1__RANK_STATUS__INIT, *ranks = &rank;
    rank.rank = 1;
    rank.joined = true;
    rank.address = (ProtobufCBinaryData){ 6, (uint8_t *)"stolen" };
    Trainyard__V1__AttemptStatus status = TRAINYARD__V1__ATTEMPT_STATUS__INIT;
    status.job = job;
    status.attempt = 1;
    status.ranks = &ranks;
    status.n_ranks = 1;
    agent_attach(stranger, &status);
    agent_expect(stranger, ORDER(STOP));
    service_run(y, agents, 2, job, 1);
    agent_free(agents[0]);
    agent_free(agents[1]);
    agent_free(stranger);
}

static void a_report_stream_is_of_one_start_of_one_executor(void **state) {
    struct service_fixture *y = *state;
    struct agent *a = agent_new(y, "a", 2, 1);
    agent_attach_alive(a);
    const int64_t job = service_submit(y, 1, 0);
    assert_non_null(
        strstr(agent_report_as(a, "b", 2, job), "INVALID_ARGUMENT: a report stream of executor a, start 2"));
    assert_non_null(
        strstr(agent_report_as(a, "a", 3, job), "INVALID_ARGUMENT: a report stream of executor a, start 2"));
    assert_non_null(strstr(agent_report_as(a, "a", 1, job), "UNAVAILABLE: executor a is not attached"));
    agent_free(a);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(an_agent_can_neither_start_nor_address_nor_join_nor_end_a_rank_of_another_executor),
        FIXTURE_TEST(a_hello_gives_a_gang_no_address_of_a_rank_of_another_executor),
        FIXTURE_TEST(a_report_stream_is_of_one_start_of_one_executor),
    };
    return cmocka_run_group_tests(tests, service_group_setup, service_group_teardown);
}
