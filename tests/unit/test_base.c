/* base/, function by function: errors, buffers, files, digests, clocks, the log, counts of cores and limits of memory,
 * and child processes.
 *
 * Digests and checksums are compared with published examples. Memory limits and CPU quotas are read from cgroup files
 * that the test writes into a temporary folder, so that the result does not depend on the host. Functions that end the
 * process run in a forked child, and the test checks the child's exit and its last line. */
#include "base/alloc.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/cores.h"
#include "base/crc32c.h"
#include "base/file.h"
#include "base/log.h"
#include "base/memory.h"
#include "base/process.h"
#include "base/sha256.h"
#include "base/status.h"
#include "tests/sanitized.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

static void an_error_sentence_is_kept_and_prefixed(void **state) {
    (void)state;
    struct err e = { "" };
    status_t st = err_set(&e, ST_NOT_FOUND, "job %d does not exist", 7);
    assert_int_equal(st, ST_NOT_FOUND);
    assert_string_equal(e.msg, "job 7 does not exist");
    st = err_prefix(&e, st, "cancel: ");
    assert_int_equal(st, ST_NOT_FOUND);
    assert_string_equal(e.msg, "cancel: job 7 does not exist");
    assert_int_equal(err_set(NULL, ST_ABORTED, "nobody reads this"), ST_ABORTED);
}

static void a_sentence_too_long_says_that_it_was_cut(void **state) {
    (void)state;
    struct err e;
    char text[2000];
    memset(text, 'x', sizeof text - 1);
    text[sizeof text - 1] = '\0';
    status_ignore(err_set(&e, ST_INTERNAL, "%s", text));
    assert_int_equal(strlen(e.msg), sizeof e.msg - 1);
    assert_string_equal(e.msg + sizeof e.msg - 4, "...");
    status_ignore(err_prefix(&e, ST_INTERNAL, "before: "));
    assert_int_equal(strncmp(e.msg, "before: xxx", 11), 0);
    assert_string_equal(e.msg + sizeof e.msg - 4, "...");
}

static void errno_becomes_a_status_and_a_reason(void **state) {
    (void)state;
    struct err e;
    errno = ENOENT;
    assert_int_equal(err_errno(&e, "open '/nowhere'"), ST_NOT_FOUND);
    assert_string_equal(e.msg, "open '/nowhere': No such file or directory");
    errno = ENOSPC;
    assert_int_equal(err_errno(&e, "write"), ST_RESOURCE_EXHAUSTED);
}

static void a_buffer_refuses_what_exceeds_its_limit_and_keeps_what_it_has(void **state) {
    (void)state;
    struct err e;
    struct bytes b;
    bytes_init(&b, 10);
    assert_int_equal(bytes_append(&b, "12345678", 8, &e), ST_OK);
    assert_int_equal(bytes_append(&b, "abc", 3, &e), ST_RESOURCE_EXHAUSTED);
    assert_string_equal(b.data, "12345678");
    assert_int_equal(bytes_printf(&b, &e, "%d", 42), ST_OK);
    assert_string_equal(b.data, "1234567842");
    assert_int_equal(bytes_reserve(&b, SIZE_MAX, &e), ST_RESOURCE_EXHAUSTED);
    bytes_done(&b);
}

static void a_file_written_atomically_reads_back_and_leaves_no_temporary(void **state) {
    (void)state;
    struct err e;
    char dir[] = "/tmp/trainyard-test-XXXXXX";
    assert_non_null(mkdtemp(dir));
    char sub[64], path[96], tmp[104];
    snprintf(sub, sizeof sub, "%s/a/b", dir);
    assert_int_equal(dir_make(sub, 0755, &e), ST_OK);
    assert_int_equal(dir_make(sub, 0755, &e), ST_OK);
    snprintf(path, sizeof path, "%s/f", sub);
    snprintf(tmp, sizeof tmp, "%s.tmp", path);
    assert_int_equal(file_write_atomic(path, "one", 3, 0644, &e), ST_OK);
    assert_int_equal(file_write_atomic(path, "second", 6, 0644, &e), ST_OK);
    assert_int_equal(access(tmp, F_OK), -1);
    struct bytes b;
    bytes_init(&b, 100);
    assert_int_equal(file_read(path, &b, &e), ST_OK);
    assert_string_equal(b.data, "second");
    bytes_done(&b);
    bytes_init(&b, 5);
    assert_int_equal(file_read(path, &b, &e), ST_RESOURCE_EXHAUSTED);
    assert_int_equal(file_read(sub, &b, &e), ST_INVALID_ARGUMENT);
    bytes_done(&b);
    assert_int_equal(dir_make(path, 0755, &e), ST_ALREADY_EXISTS);
    assert_int_equal(dir_remove(dir, &e), ST_OK);
    assert_int_equal(dir_remove(dir, &e), ST_OK);
    assert_int_equal(access(dir, F_OK), -1);
}

/* The kernel says that a file of /proc has no bytes. */
static void a_file_of_proc_is_read_to_its_end_and_no_further_than_the_limit(void **state) {
    (void)state;
    struct err e;
    struct stat st;
    struct bytes b;
    static const char path[] = "/proc/self/status";
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_size, 0);
    bytes_init(&b, 1 << 20);
    assert_int_equal(file_read(path, &b, &e), ST_OK);
    assert_non_null(strstr(b.data, "nonvoluntary_ctxt_switches:")); /* its last line */
    assert_int_equal(b.data[b.len], '\0');
    bytes_done(&b);
    bytes_init(&b, 20);
    assert_int_equal(file_read(path, &b, &e), ST_RESOURCE_EXHAUSTED);
    assert_string_equal(e.msg, "'/proc/self/status' has more than the 20 bytes that are read at most");
    bytes_done(&b);
}

static void a_file_as_long_as_the_limit_is_read_and_is_added_to_what_is_there(void **state) {
    (void)state;
    struct err e;
    struct bytes b;
    char path[] = "/tmp/trainyard-test-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, "second", 6), 6);
    close(fd);
    bytes_init(&b, 12);
    assert_int_equal(file_read(path, &b, &e), ST_OK);
    assert_int_equal(file_read(path, &b, &e), ST_OK);
    assert_string_equal(b.data, "secondsecond");
    assert_int_equal(file_read(path, &b, &e), ST_RESOURCE_EXHAUSTED);
    bytes_done(&b);
    unlink(path);
}

static void an_old_temporary_file_does_not_widen_the_mode(void **state) {
    (void)state;
    struct err e;
    struct stat st;
    char dir[] = "/tmp/trainyard-test-XXXXXX", path[64], tmp[72];
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/f", dir);
    snprintf(tmp, sizeof tmp, "%s.tmp", path);
    assert_int_equal(file_write_atomic(tmp, "old", 3, 0644, &e), ST_OK);
    assert_int_equal(chmod(tmp, 0666), 0);
    assert_int_equal(file_write_atomic(path, "secret", 6, 0600, &e), ST_OK);
    assert_int_equal(stat(path, &st), 0);
    assert_int_equal(st.st_mode & 0777, 0600);
    assert_int_equal(dir_remove(dir, &e), ST_OK);
}

static void sha256_agrees_with_the_standard(void **state) {
    (void)state;
    uint8_t d[SHA256_BYTES];
    char hex[SHA256_HEX];
    sha256_of("abc", 3, d); /* FIPS 180-4, example B.1 */
    sha256_hex(d, hex);
    assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    struct sha256 s;
    sha256_begin(&s);
    for (int round = 0; round < 2; round++) { /* a finished context starts afresh */
        sha256_update(&s, "a", 1);
        sha256_update(&s, "bc", 2);
        sha256_final(&s, d);
        sha256_hex(d, hex);
        assert_string_equal(hex, "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}

static int64_t fixed_ns(void *ctx) { return *(int64_t *)ctx; }
static int64_t fixed_us(void *ctx) { return *(int64_t *)ctx / 1000; }

/* The values of RFC 3720, B.4, and those of each single byte by the definition. */
static void crc32c_agrees_with_the_standard(void **state) {
    (void)state;
    uint8_t bytes[32] = { 0 };
    assert_int_equal(crc32c(0, bytes, 32), 0x8a9136aa);
    memset(bytes, 0xff, sizeof bytes);
    assert_int_equal(crc32c(0, bytes, 32), 0x62a8ab43);
    for (int i = 0; i < 32; i++)
        bytes[i] = (uint8_t)i;
    assert_int_equal(crc32c(0, bytes, 32), 0x46dd794e);
    assert_int_equal(crc32c(crc32c(0, bytes, 7), bytes + 7, 25), 0x46dd794e);
    assert_int_equal(crc32c(0, "123456789", 9), 0xe3069283);
    for (int byte = 0; byte < 256; byte++) {
        uint32_t crc = 0xffffffffu ^ (uint32_t)byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ 0x82f63b78u : crc >> 1;
        assert_int_equal(crc32c(0, &(uint8_t){ (uint8_t)byte }, 1), ~crc);
    }
}

static void a_test_clock_replaces_all_three_clocks(void **state) {
    (void)state;
    int64_t now = INT64_C(5000000000);
    struct clock_source source = { fixed_ns, fixed_us, &now };
    clock_override(&source);
    assert_int_equal(clock_mono_ms(), 5000);
    assert_int_equal(clock_wall_us(), 5000000);
    deadline_ms_t d = deadline_in(250);
    assert_int_equal(deadline_poll_ms(d), 250);
    now += INT64_C(300000000);
    assert_int_equal(deadline_poll_ms(d), 0);
    assert_int_equal(deadline_poll_ms(DEADLINE_NEVER), -1);
    clock_override(NULL);
}

/* Runs log_event with stderr redirected to a file, and returns the text of the file. */
static void captured(char *text, size_t cap, enum log_format format, const char *value) {
    FILE *f = tmpfile();
    int keep = dup(STDERR_FILENO);
    dup2(fileno(f), STDERR_FILENO);
    log_setup(format, LOG_INFO);
    log_event(LOG_INFO, "thing_done", "job", LOG_INT(7), "value", LOG_STR(value), "took_s", LOG_DOUBLE(0.5), NULL);
    log_event(LOG_DEBUG, "not_shown", NULL);
    dup2(keep, STDERR_FILENO);
    close(keep);
    rewind(f);
    size_t n = fread(text, 1, cap - 1, f);
    text[n] = '\0';
    fclose(f);
}

static void a_log_line_cannot_be_forged_by_its_values(void **state) {
    (void)state;
    char text[8192];
    captured(text, sizeof text, LOG_TEXT, "a b\nerror forged");
    assert_non_null(strstr(text, " info thing_done job=7 value=\"a b\\u000aerror forged\" took_s=0.5\n"));
    assert_null(strstr(text, "not_shown"));
    captured(text, sizeof text, LOG_JSON, "say \"hi\"\\");
    assert_non_null(
        strstr(text, "\"event\":\"thing_done\",\"job\":7,\"value\":\"say \\\"hi\\\"\\\\\",\"took_s\":0.5}\n"));
}

static void a_log_line_too_long_drops_whole_fields_and_says_so(void **state) {
    (void)state;
    char text[8192], value[5000];
    memset(value, 'v', sizeof value - 1);
    value[sizeof value - 1] = '\0';
    captured(text, sizeof text, LOG_JSON, value);
    assert_true(strlen(text) <= 4096);
    assert_non_null(strstr(text, "\"job\":7,\"cut\":true}\n"));
}

static void only_the_cores_that_a_process_may_use_are_counted(void **state) {
    (void)state;
    cpu_set_t before, one;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    assert_in_range(cores_allowed(), 1, CPU_COUNT(&before));
    int core = 0;
    while (!CPU_ISSET(core, &before))
        core++;
    CPU_ZERO(&one);
    CPU_SET(core, &one);
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(cores_allowed(), 1);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
}

static void text_write(const char *path, const char *text) {
    assert_int_equal(file_write_atomic(path, text, strlen(text), 0600, NULL), ST_OK);
}

static void the_tightest_group_limits_memory(void **state) {
    (void)state;
    static const struct {
        const char *here, *above;
        int64_t bytes;
    } cases[] = {
        { "1073741824\n", "max\n", 1073741824 },
        { "max\n", "2147483648\n", 2147483648 },
        { "3000000000\n", "2000000000\n", 2000000000 },
        { "max\n", "max\n", 0 },
        { "-1\n", "nonsense\n", 0 },
    };
    char root[] = "/tmp/trainyard-memory-XXXXXX", path[80], membership[80];
    assert_non_null(mkdtemp(root));
    snprintf(membership, sizeof membership, "%s/membership", root);
    text_write(membership, "0::/a/b\n");
    snprintf(path, sizeof path, "%s/a/b", root);
    assert_int_equal(dir_make(path, 0700, NULL), ST_OK);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(path, sizeof path, "%s/a/b/memory.max", root);
        text_write(path, cases[i].here);
        snprintf(path, sizeof path, "%s/a/memory.max", root);
        text_write(path, cases[i].above);
        assert_int_equal(memory_of_group(membership, root), cases[i].bytes);
    }
    assert_int_equal(dir_remove(root, NULL), ST_OK);
    assert_true(memory_allowed() > 0 && memory_allowed() <= (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE));
}

/* A tree as cgroup v2 shows it: the tightest group on the path counts. */
static void a_cpu_quota_is_rounded_up_to_whole_cores(void **state) {
    (void)state;
    static const struct {
        const char *membership, *here, *above;
        int cores;
    } cases[] = {
        { "0::/a/b\n", "150000 100000\n", "max 100000\n", 2 },
        { "0::/a/b\n", "max 100000\n", "400000 100000\n", 4 },
        { "0::/a/b\n", "400000 100000\n", "50000 100000\n", 1 },
        { "0::/a/b\n", "max 100000\n", "max 100000\n", 0 },
        { "3:cpu:/a\n0::/a/b\n", "200000 100000\n", "max 100000\n", 2 },
        { "3:cpu:/a/b\n", "200000 100000\n", "max 100000\n", 0 },
        { "0::/a/b\n", "-1 100000\n", "nonsense\n", 0 },
        { "0::/a/b\n", "9223372036854775807 1\n", "1 0\n", 0 },
        { "0::/\n", "100000 100000\n", "100000 100000\n", 0 },
        { "", "100000 100000\n", "100000 100000\n", 0 },
    };
    char root[] = "/tmp/trainyard-cores-XXXXXX", path[80], membership[80];
    assert_non_null(mkdtemp(root));
    snprintf(membership, sizeof membership, "%s/membership", root);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        snprintf(path, sizeof path, "%s/a/b", root);
        assert_int_equal(dir_make(path, 0700, NULL), ST_OK);
        text_write(membership, cases[i].membership);
        snprintf(path, sizeof path, "%s/a/b/cpu.max", root);
        text_write(path, cases[i].here);
        snprintf(path, sizeof path, "%s/a/cpu.max", root);
        text_write(path, cases[i].above);
        if (cores_of_quota(membership, root) != cases[i].cores)
            fail_msg("case %zu: %d cores", i, cores_of_quota(membership, root));
    }
    assert_int_equal(cores_of_quota("/nonexistent", root), 0);
    assert_int_equal(dir_remove(root, NULL), ST_OK);
    assert_int_equal(cores_per_rank(64, 3), 21);
    assert_int_equal(cores_per_rank(2, 5), 1);
}

static void what_stands_beside_a_program_is_found(void **state) {
    (void)state;
    char self[4096], beside[4096], small[8];
    struct err e;
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(n > 0);
    self[n] = '\0';
    assert_int_equal(process_beside("test_base", beside, sizeof beside, &e), ST_OK);
    assert_string_equal(beside, self);
    assert_int_equal(process_beside("test_base", small, sizeof small, &e), ST_INVALID_ARGUMENT);
    assert_int_equal(process_beside("test_base", beside, (size_t)n, &e), ST_INVALID_ARGUMENT);
    assert_int_equal(process_beside("test_base", beside, (size_t)n + 1, &e), ST_OK);
}

static void a_child_has_the_descriptors_that_it_is_given_and_no_signal_of_ours(void **state) {
    (void)state;
    char said[200];
    int out[2];
    pid_t pid;
    struct err e;
    sigset_t blocked, before;
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    sigprocmask(SIG_BLOCK, &blocked, &before);
    sighandler_t pipe_before = signal(SIGPIPE, SIG_IGN);
    assert_int_equal(dup2(0, 40), 40); /* a library's, without close-on-exec */
    assert_int_equal(pipe(out), 0);
    /* glibc makes the child ignore two signals of its own, above the lower 31. */
    static const char script[] = "test -e /proc/self/fd/40 && echo leak; readlink /proc/self/fd/0; "
                                 "grep -c '^Sig\\(Blk\\|Ign\\):.*0000000$' /proc/self/status; echo $WORD >&4";
    const struct process p = { .program = "/bin/sh",
                               .argv = (const char *const[]){ "sh", "-c", script, NULL },
                               .environ = (const char *const[]){ "WORD=given", "PATH=/bin:/usr/bin", NULL },
                               .fds = { { PROCESS_NULL, 0 }, { out[1], 1 }, { out[1], 4 } },
                               .n_fds = 3,
                               .group = PROCESS_OWN_GROUP };
    assert_int_equal(process_start(&p, &pid, &e), ST_OK);
    assert_int_equal(getpgid(pid), pid);
    close(out[1]);
    size_t n = 0;
    for (ssize_t got; (got = read(out[0], said + n, sizeof said - 1 - n)) > 0;)
        n += (size_t)got;
    said[n] = '\0';
    assert_string_equal(said, "/dev/null\n2\ngiven\n");
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    close(out[0]);
    close(40);
    signal(SIGPIPE, pipe_before);
    sigprocmask(SIG_SETMASK, &before, NULL);
}

static void a_missing_program_is_reported_at_once(void **state) {
    (void)state;
    struct err e;
    pid_t pid;
    const struct process p = { .program = "/nowhere/sh", .argv = (const char *const[]){ "sh", NULL } };
    assert_int_equal(process_start(&p, &pid, &e), ST_NOT_FOUND);
    assert_string_equal(e.msg, "start '/nowhere/sh': No such file or directory");
}

static void a_refused_small_allocation_ends_the_process_with_one_line(void **state) {
    (void)state;
    if (SANITIZED) /* ends the process itself when it refuses */
        skip();
    int out[2];
    assert_int_equal(pipe(out), 0);
    const pid_t pid = fork();
    if (pid == 0) {
        dup2(out[1], STDERR_FILENO);
        void *never = alloc_zeroed(SIZE_MAX / 2, 1);
        _exit(never ? 0 : 1);
    }
    close(out[1]);
    char line[100] = "";
    assert_true(read(out[0], line, sizeof line - 1) > 0);
    close(out[0]);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 71);
    assert_string_equal(line, "out of memory: 9223372036854775807 bytes were refused\n");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_refused_small_allocation_ends_the_process_with_one_line),
        cmocka_unit_test(an_error_sentence_is_kept_and_prefixed),
        cmocka_unit_test(a_sentence_too_long_says_that_it_was_cut),
        cmocka_unit_test(errno_becomes_a_status_and_a_reason),
        cmocka_unit_test(a_buffer_refuses_what_exceeds_its_limit_and_keeps_what_it_has),
        cmocka_unit_test(a_file_written_atomically_reads_back_and_leaves_no_temporary),
        cmocka_unit_test(a_file_of_proc_is_read_to_its_end_and_no_further_than_the_limit),
        cmocka_unit_test(a_file_as_long_as_the_limit_is_read_and_is_added_to_what_is_there),
        cmocka_unit_test(an_old_temporary_file_does_not_widen_the_mode),
        cmocka_unit_test(sha256_agrees_with_the_standard),
        cmocka_unit_test(crc32c_agrees_with_the_standard),
        cmocka_unit_test(a_test_clock_replaces_all_three_clocks),
        cmocka_unit_test(a_log_line_cannot_be_forged_by_its_values),
        cmocka_unit_test(a_log_line_too_long_drops_whole_fields_and_says_so),
        cmocka_unit_test(only_the_cores_that_a_process_may_use_are_counted),
        cmocka_unit_test(a_cpu_quota_is_rounded_up_to_whole_cores),
        cmocka_unit_test(the_tightest_group_limits_memory),
        cmocka_unit_test(what_stands_beside_a_program_is_found),
        cmocka_unit_test(a_child_has_the_descriptors_that_it_is_given_and_no_signal_of_ours),
        cmocka_unit_test(a_missing_program_is_reported_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
