/* What a worker in its sandbox may read and write, by the command that it got. */
#include "executor/worker/worker_sandbox.h"

#include "base/cleanup.h"
#include "base/file.h"
#include "executor/sandbox/landlock_rights.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

/* folder/checkpoints/{7,8}/attempt-1, folder/data, folder/agent, folder/agent/tokens */
static char folder[PATH_MAX], root[PATH_MAX], own[PATH_MAX], data[PATH_MAX], agent[PATH_MAX], tokens[PATH_MAX];

static char *path(const char *below) {
    static char all[8][PATH_MAX];
    static int next;
    char *ret = all[next++ % 8];
    assert_true(snprintf(ret, PATH_MAX, "%.200s/%s", folder, below) < PATH_MAX);
    return ret;
}

static void make_file(const char *below) {
    const int fd = open(path(below), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    close(fd);
}

static int folders_make(void **state) {
    (void)state;
    static const char *const all[] = { "checkpoints",
                                       "checkpoints/7",
                                       "checkpoints/7/attempt-1",
                                       "checkpoints/7/attempt-1/step-5",
                                       "checkpoints/8",
                                       "checkpoints/8/attempt-1",
                                       "data",
                                       "agent",
                                       "agent/tokens" };
    snprintf(folder, sizeof folder, "/var/tmp/trainyard-worker-XXXXXX");
    if (!mkdtemp(folder))
        return -1;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (mkdir(path(all[i]), 0700) < 0)
            return -1;
    snprintf(root, sizeof root, "%s", path("checkpoints"));
    snprintf(own, sizeof own, "%s", path("checkpoints/7/attempt-1"));
    snprintf(data, sizeof data, "%s", path("data"));
    snprintf(agent, sizeof agent, "%s", path("agent"));
    make_file("checkpoints/.trainyard-cluster");
    make_file("checkpoints/7/attempt-1/step-5/weights");
    make_file("checkpoints/8/attempt-1/weights");
    make_file("data/text");
    make_file("agent/identity");
    snprintf(tokens, sizeof tokens, "%s", path("agent/tokens"));
    make_file("agent/tokens/0123");
    return 0;
}

static int folders_remove(void **state) {
    (void)state;
    return dir_remove(folder, NULL) == ST_OK ? 0 : -1;
}

struct order {
    char *roots[1], *data[1];
    Trainyard__V1__DataExcept except, *excepts[1];
    Trainyard__V1__SandboxOrder sandbox;
};

static void order_init(struct order *o) {
    *o = (struct order){ .roots = { root }, .data = { data } };
    trainyard__v1__data_except__init(&o->except);
    trainyard__v1__sandbox_order__init(&o->sandbox);
    o->except.path = agent;
    o->excepts[0] = &o->except;
}

/* errno of an open after the command; 0: none. */
static int open_after(const Trainyard__V1__WorkerCommand *first, const char *file, int flags) {
    const pid_t pid = fork();
    if (pid == 0) {
        struct err e;
        if (worker_sandbox_enter(first, &e) != ST_OK)
            _exit(255);
        _exit(open(file, flags, 0600) < 0 ? errno : 0);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) != 255);
    return WEXITSTATUS(status);
}

static void need_landlock(void) {
    if (landlock_abi() < 1)
        skip();
}

static int open_in_rank(int ranks, bool required, const char *file, int flags) {
    struct order o;
    order_init(&o);
    int32_t numbers[2] = { 0, 1 };
    Trainyard__V1__AttemptStart attempt = TRAINYARD__V1__ATTEMPT_START__INIT;
    Trainyard__V1__WorkerStart start = TRAINYARD__V1__WORKER_START__INIT;
    Trainyard__V1__WorkerCommand first = TRAINYARD__V1__WORKER_COMMAND__INIT;
    attempt.world_size = ranks;
    attempt.ranks = numbers;
    attempt.n_ranks = (size_t)ranks;
    attempt.checkpoint_directory = own;
    start.attempt = &attempt;
    start.checkpoint_roots = o.roots;
    start.data_roots = o.data;
    start.data_except = o.excepts;
    start.n_checkpoint_roots = start.n_data_roots = start.n_data_except = 1;
    start.sandbox = &o.sandbox;
    start.token_cache = tokens;
    o.sandbox.required = required;
    first.command_case = TRAINYARD__V1__WORKER_COMMAND__COMMAND_START;
    first.start = &start;
    return open_after(&first, file, flags);
}

static void a_rank_reads_data_and_writes_its_own_checkpoints(void **state) {
    (void)state;
    need_landlock();
    assert_int_equal(open_in_rank(1, false, path("data/text"), O_RDONLY), 0);
    assert_int_equal(open_in_rank(1, false, path("data/text"), O_WRONLY), EACCES);
    assert_int_equal(open_in_rank(1, false, path("checkpoints/7/attempt-1/new"), O_WRONLY | O_CREAT), 0);
    assert_int_equal(open_in_rank(1, false, path("checkpoints/.trainyard-cluster"), O_RDONLY), 0);
    assert_int_equal(open_in_rank(1, false, root, O_RDONLY | O_DIRECTORY), 0);
}

static void a_rank_reads_neither_other_checkpoints_nor_the_agents_files(void **state) {
    (void)state;
    need_landlock();
    assert_int_equal(open_in_rank(1, false, path("checkpoints/8/attempt-1/weights"), O_RDONLY), EACCES);
    assert_int_equal(open_in_rank(1, false, path("agent/identity"), O_RDONLY), EACCES);
    assert_int_equal(open_in_rank(1, false, path("checkpoints/new"), O_WRONLY | O_CREAT), EACCES);
}

/* They read each other's memory, which Landlock forbids. */
static void ranks_that_share_a_host_have_landlock_only_if_it_is_required(void **state) {
    (void)state;
    need_landlock();
    assert_int_equal(open_in_rank(2, false, path("agent/identity"), O_RDONLY), 0);
    assert_int_equal(open_in_rank(2, true, path("agent/identity"), O_RDONLY), EACCES);
}

static void a_check_writes_nothing(void **state) {
    (void)state;
    need_landlock();
    struct order o;
    order_init(&o);
    Trainyard__V1__WorkerCheck check = TRAINYARD__V1__WORKER_CHECK__INIT;
    Trainyard__V1__WorkerCommand first = TRAINYARD__V1__WORKER_COMMAND__INIT;
    check.checkpoint_directory = root;
    check.checkpoint_roots = o.roots;
    check.data_roots = o.data;
    check.data_except = o.excepts;
    check.n_checkpoint_roots = check.n_data_roots = check.n_data_except = 1;
    check.sandbox = &o.sandbox;
    first.command_case = TRAINYARD__V1__WORKER_COMMAND__COMMAND_CHECK;
    first.check = &check;
    assert_int_equal(open_after(&first, path("data/text"), O_RDONLY), 0);
    assert_int_equal(open_after(&first, path("checkpoints/new"), O_WRONLY | O_CREAT), EACCES);
    assert_int_equal(open_after(&first, path("checkpoints/8/attempt-1/weights"), O_RDONLY), EACCES);
    assert_int_equal(open_after(&first, path("agent/identity"), O_RDONLY), EACCES);
    check.token_cache = tokens;
    assert_int_equal(open_after(&first, path("agent/tokens/0123"), O_RDONLY), 0);
    assert_int_equal(open_after(&first, path("agent/tokens/new"), O_WRONLY | O_CREAT), EACCES);
}

/* Whoever knows the name of a file of tokens has read the text. */
static void a_rank_opens_tokens_that_it_can_name_and_changes_none(void **state) {
    (void)state;
    need_landlock();
    assert_int_equal(open_in_rank(1, false, path("agent/tokens/0123"), O_RDONLY), 0);
    assert_int_equal(open_in_rank(1, false, tokens, O_RDONLY | O_DIRECTORY), EACCES);
    assert_int_equal(open_in_rank(1, false, path("agent/tokens/0123"), O_RDWR), EACCES);
    assert_int_equal(open_in_rank(1, false, path("agent/tokens/new"), O_WRONLY | O_CREAT), EACCES);
    assert_int_equal(open_in_rank(1, false, path("agent/identity"), O_RDONLY), EACCES);
}

static void a_worker_that_encodes_reads_data_and_writes_tokens_alone(void **state) {
    (void)state;
    need_landlock();
    struct order o;
    order_init(&o);
    Trainyard__V1__WorkerEncode encode = TRAINYARD__V1__WORKER_ENCODE__INIT;
    Trainyard__V1__WorkerCommand first = TRAINYARD__V1__WORKER_COMMAND__INIT;
    encode.token_cache = tokens;
    encode.checkpoint_roots = o.roots;
    encode.data_roots = o.data;
    encode.data_except = o.excepts;
    encode.n_checkpoint_roots = encode.n_data_roots = encode.n_data_except = 1;
    encode.sandbox = &o.sandbox;
    first.command_case = TRAINYARD__V1__WORKER_COMMAND__COMMAND_ENCODE;
    first.encode = &encode;
    assert_int_equal(open_after(&first, path("data/text"), O_RDONLY), 0);
    assert_int_equal(open_after(&first, path("data/text"), O_WRONLY), EACCES);
    assert_int_equal(open_after(&first, path("agent/tokens/4567"), O_RDWR | O_CREAT), 0);
    assert_int_equal(open_after(&first, tokens, O_RDONLY | O_DIRECTORY), 0);
    assert_int_equal(open_after(&first, path("agent/identity"), O_RDONLY), EACCES);
    assert_int_equal(open_after(&first, path("checkpoints/7/attempt-1/step-5/weights"), O_RDONLY), EACCES);
}

static void a_sample_reads_its_own_checkpoint(void **state) {
    (void)state;
    need_landlock();
    struct order o;
    order_init(&o);
    Trainyard__V1__WorkerSample sample = TRAINYARD__V1__WORKER_SAMPLE__INIT;
    Trainyard__V1__WorkerCommand first = TRAINYARD__V1__WORKER_COMMAND__INIT;
    sample.directory = path("checkpoints/7/attempt-1/step-5");
    sample.checkpoint_roots = o.roots;
    sample.data_except = o.excepts;
    sample.n_checkpoint_roots = sample.n_data_except = 1;
    sample.sandbox = &o.sandbox;
    first.command_case = TRAINYARD__V1__WORKER_COMMAND__COMMAND_SAMPLE;
    first.sample = &sample;
    assert_int_equal(open_after(&first, path("checkpoints/7/attempt-1/step-5/weights"), O_RDONLY), 0);
    assert_int_equal(open_after(&first, path("checkpoints/7/attempt-1/step-5/weights"), O_WRONLY), EACCES);
    assert_int_equal(open_after(&first, path("checkpoints/8/attempt-1/weights"), O_RDONLY), EACCES);
}

static void a_command_without_an_order_forbids_nothing(void **state) {
    (void)state;
    Trainyard__V1__WorkerSample sample = TRAINYARD__V1__WORKER_SAMPLE__INIT;
    Trainyard__V1__WorkerCommand first = TRAINYARD__V1__WORKER_COMMAND__INIT;
    first.command_case = TRAINYARD__V1__WORKER_COMMAND__COMMAND_SAMPLE;
    first.sample = &sample;
    assert_int_equal(open_after(&first, path("agent/identity"), O_RDWR), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_rank_reads_data_and_writes_its_own_checkpoints),
        cmocka_unit_test(a_rank_reads_neither_other_checkpoints_nor_the_agents_files),
        cmocka_unit_test(ranks_that_share_a_host_have_landlock_only_if_it_is_required),
        cmocka_unit_test(a_check_writes_nothing),
        cmocka_unit_test(a_rank_opens_tokens_that_it_can_name_and_changes_none),
        cmocka_unit_test(a_worker_that_encodes_reads_data_and_writes_tokens_alone),
        cmocka_unit_test(a_sample_reads_its_own_checkpoint),
        cmocka_unit_test(a_command_without_an_order_forbids_nothing),
    };
    return cmocka_run_group_tests(tests, folders_make, folders_remove);
}
