/* Checking the trials of a sweep ends with its call, and leaves threads for other calls. */
#include "service/controller/spec_check.h"
#include "service/rpc/sweep_judge.h"
#include "tests/rpc/service_fixture.h"

static Trainyard__V1__SweepSpec *sweep_spec(void) {
    static Trainyard__V1__RandomSearch random = TRAINYARD__V1__RANDOM_SEARCH__INIT;
    static Trainyard__V1__SearchSpec search = TRAINYARD__V1__SEARCH_SPEC__INIT;
    static Trainyard__V1__SweepParameter parameter = TRAINYARD__V1__SWEEP_PARAMETER__INIT;
    static Trainyard__V1__SweepSpec__ParametersEntry entry = TRAINYARD__V1__SWEEP_SPEC__PARAMETERS_ENTRY__INIT;
    static Trainyard__V1__SweepSpec__ParametersEntry *entries[] = { &entry };
    static Trainyard__V1__SweepSpec sweep = TRAINYARD__V1__SWEEP_SPEC__INIT;
    static char *choices[] = { "1", "2" };
    random.trials = 20;
    random._trials_case = TRAINYARD__V1__RANDOM_SEARCH___TRIALS_TRIALS;
    search.kind_case = TRAINYARD__V1__SEARCH_SPEC__KIND_RANDOM;
    search.random = &random;
    parameter.choices = choices;
    parameter.n_choices = 2;
    entry.key = "priority";
    entry.value = &parameter;
    sweep.name = "judged";
    sweep.spec = service_spec(1, 0);
    sweep.search = &search;
    sweep.parameters = entries;
    sweep.n_parameters = 1;
    return &sweep;
}

static status_t judge(struct service_fixture *y, int64_t time_ms, struct err *e) {
    const struct sweep_request request = {
        .spec = sweep_spec(), .wait_for_hosts = true, .skip_check = true, .from = 1, .deadline = deadline_in(time_ms)
    };
    struct sweep_judgement j = { 0 };
    status_t st = sweep_judge(y->controller, &request, &j, e);
    for (size_t i = 0; st == ST_OK && i < j.problems.n; i++)
        fail_msg("%s", j.problems.lines[i]);
    sweep_judgement_done(&j);
    return st;
}

static void the_trials_are_checked_until_the_deadline(void **state) {
    struct err why = { "" };
    assert_int_equal(judge(*state, 0, &why), ST_DEADLINE_EXCEEDED);
    assert_string_equal(why.msg, "the deadline came before the spec of trial 1 was checked");
    OK(judge(*state, FIXTURE_PATIENCE_MS, &e));
}

static void sweeps_are_checked_on_half_of_the_threads(void **state) {
    struct service_fixture *y = *state;
    struct spec_checks *checks = controller_spec_checks(y->controller);
    struct err why = { "" };
    for (int i = 0; i < SPEC_CHECK_MAX_CALLERS; i++)
        assert_true(spec_checks_enter(checks));
    assert_int_equal(judge(y, FIXTURE_PATIENCE_MS, &why), ST_UNAVAILABLE);
    assert_string_equal(why.msg, "other specs are being checked: repeat the call");
    spec_checks_leave(checks);
    OK(judge(y, FIXTURE_PATIENCE_MS, &e)); /* and leaves as often as it enters */
    OK(judge(y, FIXTURE_PATIENCE_MS, &e));
    for (int i = 1; i < SPEC_CHECK_MAX_CALLERS; i++)
        spec_checks_leave(checks);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        FIXTURE_TEST(the_trials_are_checked_until_the_deadline),
        FIXTURE_TEST(sweeps_are_checked_on_half_of_the_threads),
    };
    return cmocka_run_group_tests_name("sweep_judge", tests, service_group_setup, service_group_teardown);
}
