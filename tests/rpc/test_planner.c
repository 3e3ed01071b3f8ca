/* The controller's plans. Scripts replace the program that makes them. */
#include "service/controller/planner.h"

#include "base/clock.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* A planner whose program is this shell script. */
static struct planner *planner_of(const char *script, char path[64]) {
    strcpy(path, "/tmp/trainyard-planner-XXXXXX");
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    dprintf(fd, "#!/bin/sh\n%s\n", script);
    assert_int_equal(fchmod(fd, 0700), 0);
    close(fd);
    struct planner *p = planner_new(path, NULL);
    assert_non_null(p);
    return p;
}

static status_t run(const char *script, int64_t time_ms, Trainyard__V1__Plan **ret, struct err *e) {
    char path[64];
    Trainyard__V1__JobSpec spec = TRAINYARD__V1__JOB_SPEC__INIT;
    CLEANUP(planner_freep) struct planner *p = planner_of(script, path);
    status_t st = planner_run(p, &spec, time_ms, ret, e);
    unlink(path);
    return st;
}

static void an_answer_becomes_a_plan(void **state) {
    (void)state;
    struct err e = { "" };
    Trainyard__V1__Plan *plan = NULL;
    assert_int_equal(run("cat >/dev/null; echo '{\"ranks\": 4, \"most_bytes\": \"123\"}'", 5000, &plan, &e), ST_OK);
    assert_int_equal(plan->ranks, 4);
    assert_int_equal(plan->most_bytes, 123);
    trainyard__v1__plan__free_unpacked(plan, NULL);
}

static void the_planner_reads_no_data_without_roots(void **state) {
    (void)state;
    struct err e = { "" };
    Trainyard__V1__Plan *plan = NULL;
    assert_int_equal(run("echo \"trainyard-train: $*|\" >&2; exit 2", 5000, &plan, &e), ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "plan - --json --data-root |");
}

static void it_gets_the_folders_and_what_is_excepted(void **state) {
    (void)state;
    static const char *const roots[] = { "/data", "/more" }, *const except[] = { "/data/key" };
    const struct planner_data data = { roots, except, 2, 1 };
    char path[64];
    struct err e = { "" };
    Trainyard__V1__Plan *plan = NULL;
    Trainyard__V1__JobSpec spec = TRAINYARD__V1__JOB_SPEC__INIT;
    planner_free(planner_of("echo \"$*\" >&2; exit 2", path));
    CLEANUP(planner_freep) struct planner *p = planner_new(path, &data);
    planner_except(p, "/data/hook");
    assert_int_equal(planner_run(p, &spec, 5000, &plan, &e), ST_INVALID_ARGUMENT);
    assert_string_equal(
        e.msg, "plan - --json --data-root /data --data-root /more --data-except /data/key --data-except /data/hook");
    unlink(path);
}

static void it_sees_no_secret_of_the_environment(void **state) {
    (void)state;
    struct err e = { "" };
    Trainyard__V1__Plan *plan = NULL;
    setenv("TRAINYARD_DATABASE", "password=secret", 1);
    assert_int_equal(run("env | tr '\\n' ' ' >&2; exit 2", 5000, &plan, &e), ST_INVALID_ARGUMENT);
    unsetenv("TRAINYARD_DATABASE");
    assert_non_null(strstr(e.msg, "PATH="));
    assert_null(strstr(e.msg, "secret"));
}

static void what_goes_wrong_has_its_own_status_and_the_last_sentence(void **state) {
    (void)state;
    static const struct {
        const char *script;
        status_t status;
        const char *sentence;
    } table[] = {
        { "echo first >&2; echo 'trainyard-train: train.steps: no' >&2; exit 2", ST_INVALID_ARGUMENT,
          "train.steps: no" },
        { "exit 2", ST_INVALID_ARGUMENT, "the plan's program ended without a word" },
        { "echo it broke >&2; exit 1", ST_INTERNAL, "it broke" },
        { "kill -9 $$", ST_RESOURCE_EXHAUSTED, "signal 9" },
        { "echo '{\"ranks\": many}'", ST_INTERNAL, "the plan's answer: ranks" },
        { "sleep 60", ST_DEADLINE_EXCEEDED, "longer" },
        { "exec cat /dev/zero", ST_RESOURCE_EXHAUSTED, "" },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct err e = { "" };
        Trainyard__V1__Plan *plan = NULL;
        int64_t begun = clock_mono_ms();
        status_t st = run(table[i].script, table[i].status == ST_DEADLINE_EXCEEDED ? 100 : 30000, &plan, &e);
        if (st != table[i].status || !strstr(e.msg, table[i].sentence))
            fail_msg("%s: %s: %s", table[i].script, status_name(st), e.msg);
        assert_true(clock_mono_ms() - begun < 30000);
        assert_null(plan);
    }
}

static void a_missing_program_is_reported(void **state) {
    (void)state;
    struct err e = { "" };
    Trainyard__V1__Plan *plan = NULL;
    Trainyard__V1__JobSpec spec = TRAINYARD__V1__JOB_SPEC__INIT;
    CLEANUP(planner_freep) struct planner *p = planner_new(NULL, NULL); /* there is no program beside this test */
    assert_int_equal(planner_run(p, &spec, 1000, &plan, &e), ST_UNAVAILABLE);
    assert_non_null(strstr(e.msg, "trainyard-train, which plans, is not there"));
}

struct long_plan {
    struct planner *p;
    status_t st;
    struct err why;
};

static void *plan_long(void *ctx) {
    struct long_plan *l = ctx;
    Trainyard__V1__Plan *plan = NULL;
    Trainyard__V1__JobSpec spec = TRAINYARD__V1__JOB_SPEC__INIT;
    l->st = planner_run(l->p, &spec, 60000, &plan, &l->why);
    return NULL;
}

static void one_plan_at_a_time_and_none_after_a_stop(void **state) {
    (void)state;
    char path[64], begun[80], script[160];
    snprintf(begun, sizeof begun, "/tmp/trainyard-planner-begun-%d", (int)getpid());
    snprintf(script, sizeof script, ": >%s; exec sleep 60", begun);
    assert_int_equal(mkfifo(begun, 0600), 0);
    struct long_plan l = { .p = planner_of(script, path) };
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, plan_long, &l), 0);
    close(open(begun, O_RDONLY)); /* waits until the script opens it too */
    struct err e = { "" };
    Trainyard__V1__Plan *plan = NULL;
    Trainyard__V1__JobSpec spec = TRAINYARD__V1__JOB_SPEC__INIT;
    assert_int_equal(planner_run(l.p, &spec, 1000, &plan, &e), ST_UNAVAILABLE);
    assert_non_null(strstr(e.msg, "another plan is being made"));
    planner_stop(l.p);
    pthread_join(thread, NULL);
    assert_int_equal(l.st, ST_RESOURCE_EXHAUSTED); /* ended by a signal */
    assert_int_equal(planner_run(l.p, &spec, 1000, &plan, &e), ST_UNAVAILABLE);
    assert_non_null(strstr(e.msg, "is stopping"));
    unlink(begun);
    unlink(path);
    planner_free(l.p);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_answer_becomes_a_plan),
        cmocka_unit_test(the_planner_reads_no_data_without_roots),
        cmocka_unit_test(it_gets_the_folders_and_what_is_excepted),
        cmocka_unit_test(it_sees_no_secret_of_the_environment),
        cmocka_unit_test(what_goes_wrong_has_its_own_status_and_the_last_sentence),
        cmocka_unit_test(a_missing_program_is_reported),
        cmocka_unit_test(one_plan_at_a_time_and_none_after_a_stop),
    };
    signal(SIGPIPE, SIG_IGN);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
