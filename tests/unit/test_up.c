/* The parts of `trainyard up`: its lock, its logs, its children. The children are shells; everything else is real. The
 * whole service is tested in tests/e2e. */
#include "base/file.h"
#include "base/log_file.h"
#include "cli/up/child.h"
#include "cli/up/directory.h"
#include "cli/up/exec_child.h"
#include "cli/up/supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[64];
static char self[512];

static int make_folder(void **state) {
    (void)state;
    strcpy(folder, "/tmp/trainyard-up-test-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static int remove_folder(void **state) {
    (void)state;
    return dir_remove(folder, NULL) == ST_OK ? 0 : -1;
}

static const char *in_folder(const char *name) {
    static char path[160];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static void read_all(const char *name, struct bytes *ret) {
    bytes_init(ret, 64 << 20);
    assert_int_equal(file_read(in_folder(name), ret, NULL), ST_OK);
}

static void assert_content(const char *name, const char *expected) {
    struct bytes text;
    read_all(name, &text);
    assert_string_equal(text.data, expected);
    bytes_done(&text);
}

/* ---- log_file ---- */

static void a_log_never_takes_more_than_two_files(void **state) {
    (void)state;
    struct log_file l;
    struct stat now, before;
    static char block[1 << 20];
    memset(block, 'x', sizeof block);
    assert_int_equal(log_file_open(&l, in_folder("a.log"), CHILD_LOG_BYTES, 0644, NULL), ST_OK);
    for (int i = 0; i < 40; i++)
        log_file_write(&l, block, sizeof block);
    log_file_write(&l, "end\n", 4);
    log_file_close(&l);
    assert_int_equal(stat(in_folder("a.log"), &now), 0);
    assert_int_equal(stat(in_folder("a.log.1"), &before), 0);
    assert_in_range(now.st_size, 4, CHILD_LOG_BYTES);
    assert_in_range(before.st_size, 1, CHILD_LOG_BYTES);
    assert_int_equal(log_file_open(&l, in_folder("a.log"), CHILD_LOG_BYTES, 0644, NULL), ST_OK);
    assert_int_equal(l.bytes, now.st_size); /* opened again it goes on */
    log_file_close(&l);
}

static void a_log_that_cannot_be_renamed_begins_anew(void **state) {
    (void)state;
    struct log_file l;
    struct stat now;
    assert_int_equal(mkdir(in_folder("b.log.1"), 0755), 0);
    assert_int_equal(mkdir(in_folder("b.log.1/full"), 0755), 0);
    assert_int_equal(log_file_open(&l, in_folder("b.log"), 10, 0644, NULL), ST_OK);
    for (int i = 0; i < 5; i++)
        assert_true(log_file_write(&l, "12345678\n", 9));
    log_file_close(&l);
    assert_int_equal(stat(in_folder("b.log"), &now), 0);
    assert_int_equal(now.st_size, 9);
}

static void a_log_that_could_not_be_opened_is_opened_later(void **state) {
    (void)state;
    struct log_file l;
    assert_int_equal(log_file_open(&l, in_folder("c.log"), 10, 0644, NULL), ST_OK);
    close(l.fd);
    l.fd = -1; /* as after a rotation without the new file */
    assert_int_equal(unlink(in_folder("c.log")), 0);
    assert_int_equal(mkdir(in_folder("c.log"), 0755), 0);
    assert_false(log_file_write(&l, "lost\n", 5));
    assert_int_equal(rmdir(in_folder("c.log")), 0);
    assert_true(log_file_write(&l, "kept\n", 5));
    log_file_close(&l);
    assert_content("c.log", "kept\n");
}

static void a_write_that_fails_leaves_no_part_of_a_line(void **state) {
    (void)state;
    struct log_file l;
    struct rlimit before, small;
    assert_int_equal(log_file_open(&l, in_folder("d.log"), 1000, 0644, NULL), ST_OK);
    assert_true(log_file_write(&l, "one\n", 4));
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = (struct rlimit){ .rlim_cur = 6, .rlim_max = before.rlim_max };
    void (*old)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    const bool whole = log_file_write(&l, "two\n", 4);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    signal(SIGXFSZ, old);
    assert_false(whole);
    assert_true(log_file_write(&l, "three\n", 6));
    log_file_close(&l);
    assert_content("d.log", "one\nthree\n");
}

/* ---- directory ---- */

/* A lock of fcntl belongs to a process, so the second comer must be one. */
static status_t lock_in_another_process(struct err *e) {
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) {
        struct directory d;
        struct err mine = { "" };
        status_t st = directory_find(folder, false, &d, &mine);
        if (st == ST_OK)
            st = directory_lock(&d, &mine);
        if (write(ends[1], &mine, sizeof mine) != sizeof mine)
            _exit(99);
        _exit((int)st);
    }
    int wait_status = 0;
    assert_int_equal(read(ends[0], e, sizeof *e), (ssize_t)sizeof *e);
    assert_int_equal(waitpid(pid, &wait_status, 0), pid);
    close(ends[0]);
    close(ends[1]);
    return (status_t)WEXITSTATUS(wait_status);
}

static void a_directory_has_one_service_at_a_time(void **state) {
    (void)state;
    struct directory d;
    struct err e;
    char expected[480];
    assert_int_equal(directory_find(folder, true, &d, &e), ST_OK);
    assert_int_equal(directory_lock(&d, &e), ST_OK);
    assert_int_equal(lock_in_another_process(&e), ST_FAILED_PRECONDITION);
    snprintf(expected, sizeof expected,
             "a service already runs in '%s' (process %d); stop it with 'trainyard down --dir %s'", folder,
             (int)getpid(), folder);
    assert_string_equal(e.msg, expected);
    directory_leave(&d);
    assert_int_equal(access(in_folder("lock"), F_OK), -1);
    assert_int_equal(lock_in_another_process(&e), ST_OK);
}

static void what_a_service_leaves_is_nothing(void **state) {
    (void)state;
    struct directory d;
    struct stat st;
    assert_int_equal(directory_find(folder, true, &d, NULL), ST_OK);
    assert_int_equal(directory_lock(&d, NULL), ST_OK);
    assert_int_equal(directory_prepare(&d, geteuid(), getegid(), NULL), ST_OK);
    assert_int_equal(directory_write_address(&d, "unix:/x", NULL), ST_OK);
    assert_content("address", "unix:/x\n");
    assert_int_equal(stat(d.runtime, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0700);
    assert_in_range(strlen(d.runtime) + strlen("/controller.sock"), 1, 107);
    directory_leave(&d);
    assert_int_equal(access(d.runtime, F_OK), -1);
    assert_int_equal(access(d.sockets, F_OK), -1);
    assert_int_equal(access(in_folder("address"), F_OK), -1);
    assert_int_equal(access(in_folder("lock"), F_OK), -1);
}

static void a_runtime_directory_that_others_may_enter_is_refused_and_kept(void **state) {
    (void)state;
    struct directory d;
    struct err e;
    assert_int_equal(directory_find(folder, true, &d, NULL), ST_OK);
    assert_int_equal(directory_lock(&d, NULL), ST_OK);
    assert_int_equal(mkdir(d.runtime, 0700), 0);
    assert_int_equal(chmod(d.runtime, 0777), 0);
    assert_int_equal(directory_prepare(&d, geteuid(), getegid(), &e), ST_PERMISSION_DENIED);
    assert_non_null(strstr(e.msg, "is not a private directory"));
    directory_leave(&d);
    assert_int_equal(rmdir(d.runtime), 0); /* not ours: it was left alone */
}

/* ---- supervise ---- */

struct yard {
    struct supervise s;
    struct child children[4];
    char said[2048];
    void (*when_ready)(struct yard *);
};

static status_t on_ready(void *ctx, struct err *e) {
    struct yard *y = ctx;
    (void)e;
    y->when_ready(y);
    return ST_OK;
}

static status_t on_task(void *ctx, const struct child *c, struct err *e) {
    (void)ctx;
    (void)c;
    (void)e;
    return ST_OK;
}

static void on_report(void *ctx, const char *line) {
    struct yard *y = ctx;
    size_t used = strlen(y->said);
    snprintf(y->said + used, sizeof y->said - used, "%s\n", line);
}

static void stop_now(struct yard *y) {
    (void)y;
    kill(getpid(), SIGTERM);
}

static void yard_open(struct yard *y, void (*when_ready)(struct yard *)) {
    memset(y, 0, sizeof *y);
    y->when_ready = when_ready;
    y->s = (struct supervise){ .self = self,
                               .all_ready = on_ready,
                               .task_done = on_task,
                               .report = on_report,
                               .ctx = y,
                               .parent_pipe = -1,
                               .signal_fd = -1 };
    assert_int_equal(supervise_open(&y->s, NULL), ST_OK);
}

static struct child *add_shell(struct yard *y, const char *name, int tier, const char *script) {
    struct child *c = &y->children[y->s.n];
    char log[48];
    snprintf(log, sizeof log, "%s.log", name);
    assert_int_equal(child_init(c, name, in_folder(log), NULL), ST_OK);
    c->tier = tier;
    c->ready_text = "ready ";
    child_argument(c, "/bin/sh");
    child_argument(c, "-c");
    child_argument(c, "cd %s; %s", folder, script);
    y->s.children[y->s.n++] = c;
    return c;
}

static void yard_close(struct yard *y) {
    supervise_close(&y->s);
    for (int i = 0; i < y->s.n; i++) {
        assert_int_equal(y->children[i].pid, 0);
        child_done(&y->children[i]);
    }
    assert_int_equal(waitpid(-1, NULL, WNOHANG), -1);
    assert_int_equal(errno, ECHILD);
}

#define SHELL(name)                                                                                                    \
    "trap 'echo stop " name " >>order; exit 0' TERM; echo start " name " >>order; echo ready " name "; sleep 600 & "   \
    "wait"

static void children_start_in_order_and_stop_in_reverse(void **state) {
    (void)state;
    struct yard y;
    yard_open(&y, stop_now);
    add_shell(&y, "task", 0, "echo task >>order")->ready_text = NULL;
    add_shell(&y, "a", 0, SHELL("a"));
    add_shell(&y, "b", 1, SHELL("b"));
    add_shell(&y, "c", 2, SHELL("c"));
    assert_int_equal(supervise_run(&y.s, NULL), ST_OK);
    assert_content("order", "task\nstart a\nstart b\nstart c\nstop c\nstop b\nstop a\n");
    assert_content("a.log", "ready a\n");
    yard_close(&y); /* the shells' sleeps are gone too */
}

static void a_child_that_cannot_start_ends_the_service_with_its_complaint(void **state) {
    (void)state;
    struct yard y;
    struct err e = { "" };
    char expected[480];
    yard_open(&y, stop_now);
    add_shell(&y, "good", 0, SHELL("good"));
    add_shell(
        &y, "bad", 1,
        "echo trainyard-bad: the port is in use; echo 'a line that says already begun'; echo try >>tries; exit 3");
    assert_int_equal(supervise_run(&y.s, &e), ST_FAILED_PRECONDITION);
    snprintf(expected, sizeof expected, "bad does not start: the port is in use (its log is %s)", in_folder("bad.log"));
    assert_string_equal(e.msg, expected);
    assert_content("tries", "try\ntry\ntry\n");
    assert_content("order", "start good\nstop good\n");
    yard_close(&y);
}

static void a_task_without_a_start_limit_may_take_long_and_its_progress_is_shown(void **state) {
    (void)state;
    struct yard y;
    struct err e = { "" };
    yard_open(&y, stop_now);
    struct child *c = add_shell(&y, "task", 0, "echo early; sleep 0.3; echo step 1: waits; echo error: none >&2");
    c->ready_text = NULL;
    c->start_limit_ms = 0;
    c->report_line = on_report;
    c->report_ctx = &y;
    c->report_after_ms = 0;
    struct child *quiet = add_shell(&y, "quiet", 0, "echo step 2: begins");
    quiet->ready_text = NULL;
    quiet->report_line = on_report;
    quiet->report_ctx = &y;
    quiet->report_after_ms = 600000;
    if (supervise_run(&y.s, &e) != ST_OK)
        fail_msg("%s", e.msg);
    assert_string_equal(y.said, "early\nstep 1: waits\nstopping\n");
    assert_content("task.log", "early\nstep 1: waits\nerror: none\n");
    yard_close(&y);
}

static void kill_first(struct yard *y) { kill(y->children[0].pid, SIGKILL); }

static void a_killed_child_is_started_again(void **state) {
    (void)state;
    struct yard y;
    yard_open(&y, kill_first);
    add_shell(&y, "a", 0, "if [ -e once ]; then kill -TERM $PPID; fi; touch once; echo ready; echo ready a; sleep 600");
    assert_int_equal(supervise_run(&y.s, NULL), ST_OK);
    assert_string_equal(y.said, "a was killed by signal 9 (Killed); restarting it\nstopping\n");
    yard_close(&y);
}

static void a_child_that_ignores_its_stop_signal_is_killed(void **state) {
    (void)state;
    struct yard y;
    yard_open(&y, stop_now);
    add_shell(&y, "deaf", 0, "trap '' TERM; echo ready deaf; while :; do sleep 600; done")->stop_grace_ms = 50;
    assert_int_equal(supervise_run(&y.s, NULL), ST_OK);
    yard_close(&y);
}

static void orphans_of_a_child_are_not_left_behind(void **state) {
    (void)state;
    struct yard y;
    struct bytes text;
    yard_open(&y, stop_now);
    add_shell(&y, "a", 0, "setsid sh -c 'echo $$ >orphan; trap \"\" TERM; echo ready a; sleep 600; sleep 600' & wait");
    assert_int_equal(supervise_run(&y.s, NULL), ST_OK);
    read_all("orphan", &text);
    assert_int_equal(kill(atoi(text.data), 0), -1);
    assert_int_equal(errno, ESRCH);
    bytes_done(&text);
    yard_close(&y);
}

static void a_child_dies_with_up(void **state) {
    (void)state;
    struct yard y;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) { /* an `up` that is killed once its child is ready */
        yard_open(&y, NULL);
        y.s.all_ready = NULL;
        struct child *c = add_shell(&y, "a", 0, "echo $$ >child; echo ready a; exec sleep 600");
        if (child_start(c, self, NULL) != ST_OK)
            _exit(1);
        while (!c->ready)
            child_read(c);
        raise(SIGKILL);
    }
    int wait_status = 0;
    struct bytes text;
    assert_int_equal(waitpid(pid, &wait_status, 0), pid);
    assert_true(WIFSIGNALED(wait_status));
    read_all("child", &text);
    pid_t child = atoi(text.data);
    bytes_done(&text);
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR) /* it is ours now: this process is a subreaper */
        ;
    assert_int_equal(kill(child, 0), -1);
}

int main(int argc, char **argv) {
    if (argc > 1 && strcmp(argv[1], EXEC_CHILD_COMMAND) == 0)
        return exec_child_main(argc - 2, argv + 2);
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n < 0)
        return 1;
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(a_log_never_takes_more_than_two_files),
        IN_FOLDER(a_log_that_cannot_be_renamed_begins_anew),
        IN_FOLDER(a_log_that_could_not_be_opened_is_opened_later),
        IN_FOLDER(a_write_that_fails_leaves_no_part_of_a_line),
        IN_FOLDER(a_directory_has_one_service_at_a_time),
        IN_FOLDER(what_a_service_leaves_is_nothing),
        IN_FOLDER(a_runtime_directory_that_others_may_enter_is_refused_and_kept),
        IN_FOLDER(children_start_in_order_and_stop_in_reverse),
        IN_FOLDER(a_child_that_cannot_start_ends_the_service_with_its_complaint),
        IN_FOLDER(a_task_without_a_start_limit_may_take_long_and_its_progress_is_shown),
        IN_FOLDER(a_killed_child_is_started_again),
        IN_FOLDER(a_child_that_ignores_its_stop_signal_is_killed),
        IN_FOLDER(orphans_of_a_child_are_not_left_behind),
        IN_FOLDER(a_child_dies_with_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
