/* Checkpoints when bits flip, files vanish, calls fail, the machine dies or the disk is full. The program is linked
 * with --wrap for the calls that change a file system: each call can be counted, made to fail, or made the last one. */
#include "tests/engine/saved_model.h"

#include "base/cleanup.h"
#include "base/file.h"
#include "engine/checkpoint/reader.h"
#include "engine/checkpoint/safetensors.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <cmocka.h>

/* Faults. */

enum fault { FAULT_NONE, FAULT_CRASH_BEFORE, FAULT_CRASH_AFTER, FAULT_ERROR, FAULT_READ };

static struct {
    enum fault fault;
    int at, error; /* the at-th call from 0 */
    atomic_int calls;
    bool trace;
    char log[16384];
} plan;

static void trace(const char *call, const char *name) {
    if (!plan.trace)
        return;
    const char *base = strrchr(name, '/');
    size_t n = strlen(plan.log);
    snprintf(plan.log + n, sizeof plan.log - n, "%s %s\n", call, base ? base + 1 : name);
}

static const char *name_of(int fd) {
    static _Thread_local char path[PATH_MAX];
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, path, sizeof path - 1);
    path[n < 0 ? 0 : n] = '\0';
    return path;
}

/* True if this call must fail. */
static bool strikes(void) {
    if (plan.fault == FAULT_NONE || atomic_fetch_add(&plan.calls, 1) != plan.at)
        return false;
    if (plan.fault == FAULT_CRASH_BEFORE)
        _exit(9);
    errno = plan.error;
    return plan.fault == FAULT_ERROR;
}

static void strikes_after(void) {
    if (plan.fault == FAULT_CRASH_AFTER && atomic_load(&plan.calls) == plan.at + 1)
        _exit(9);
}

#define WRAP(type, name, traced, params, args)                                                                         \
    type __real_##name params;                                                                                         \
    type __wrap_##name params;                                                                                         \
    type __wrap_##name params {                                                                                        \
        trace(#name, traced);                                                                                          \
        if (strikes())                                                                                                 \
            return -1;                                                                                                 \
        type ret = __real_##name args;                                                                                 \
        int kept = errno;                                                                                              \
        strikes_after();                                                                                               \
        errno = kept;                                                                                                  \
        return ret;                                                                                                    \
    }
ssize_t __real_pread(int fd, void *to, size_t n, off_t at);
ssize_t __wrap_pread(int fd, void *to, size_t n, off_t at);
ssize_t __wrap_pread(int fd, void *to, size_t n, off_t at) {
    if (plan.fault == FAULT_READ && atomic_fetch_add(&plan.calls, 1) == plan.at) {
        errno = plan.error;
        return -1;
    }
    return __real_pread(fd, to, n, at);
}
WRAP(int, fsync, name_of(fd), (int fd), (fd))
WRAP(int, renameat, to, (int at, const char *from, int to_at, const char *to), (at, from, to_at, to))
WRAP(ssize_t, write, name_of(fd), (int fd, const void *data, size_t n), (fd, data, n))
WRAP(int, unlinkat, path, (int at, const char *path, int flags), (at, path, flags))
WRAP(int, mkdir, path, (const char *path, mode_t mode), (path, mode))
WRAP(int, mkdirat, path, (int at, const char *path, mode_t mode), (at, path, mode))

static void fault_off(void) { plan.fault = FAULT_NONE; }

/* Tests. */

static void flip(const char *path, off_t at, int bit) {
    CLEANUP(closep) int fd = open(path, O_RDWR);
    unsigned char byte;
    assert_int_equal(pread(fd, &byte, 1, at), 1);
    byte ^= (unsigned char)(1u << bit);
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
}

static void assert_refused(const char *directory, status_t st, const char *says) {
    struct err e = { "" };
    struct checkpoint_reader *r = NULL;
    assert_int_equal(checkpoint_reader_open(directory, NULL, &r, &e), st);
    assert_null(r);
    if (!strstr(e.msg, says))
        fail_msg("'%s' does not name '%s'", e.msg, says);
}

static void assert_lost(const char *directory, const char *says) { assert_refused(directory, ST_DATA_LOSS, says); }

static const char *const FILES[] = { "manifest.json", "rank-0.json", "rank-0.safetensors", "rank-1.json",
                                     "rank-1.safetensors" };

static void one_flipped_bit_anywhere_is_caught(void **state) {
    (void)state;
    struct outcome o;
    assert_int_equal(save(path_of("flips").s, 2, 7, 3, &o), ST_OK);
    const struct path directory_path = path_of("flips/step-7");
    const char *directory = directory_path.s;
    uint32_t random = 12345;
    for (size_t f = 0; f < sizeof FILES / sizeof *FILES; f++) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/%s", directory, FILES[f]);
        struct stat st;
        assert_int_equal(stat(path, &st), 0);
        for (int i = 0; i < 24; i++) { /* both ends, and random places */
            random = random * 1664525u + 1013904223u;
            off_t at = i < 8 ? i : i < 16 ? st.st_size - 1 - (i - 8) : (off_t)(random % (uint32_t)st.st_size);
            flip(path, at, i % 8);
            assert_lost(directory, FILES[f]);
            flip(path, at, i % 8);
        }
    }
    assert_loads(directory, 3);
}

/* A missing file proves nothing about the bytes: it may return, or another host may read it. */
static void a_file_that_is_missing_or_cannot_be_read_is_no_lost_data(void **state) {
    (void)state;
    const struct path directory_path = path_of("flips/step-7"), away = path_of("flips/away");
    const char *directory = directory_path.s;
    for (size_t f = 0; f < sizeof FILES / sizeof *FILES; f++) {
        char kept[PATH_MAX], path[PATH_MAX];
        snprintf(path, sizeof path, "%s/%s", directory, FILES[f]);
        snprintf(kept, sizeof kept, "%s/kept", root);
        assert_int_equal(rename(path, kept), 0);
        assert_refused(directory, ST_NOT_FOUND, FILES[f]);
        assert_int_equal(rename(kept, path), 0);
    }
    for (int at = 0; at < 6; at++) { /* the device fails at one of the first reads */
        plan.fault = FAULT_READ;
        plan.error = EIO;
        plan.at = at;
        atomic_store(&plan.calls, 0);
        assert_refused(directory, ST_NOT_FOUND, "Input/output error");
        fault_off();
    }
    atomic_store(&plan.calls, 0);
    assert_int_equal(rename(directory, away.s), 0);
    assert_refused(directory, ST_NOT_FOUND, "step-7': No such file or directory");
    assert_int_equal(rename(away.s, directory), 0);
    assert_loads(directory, 3);
}

static void a_file_cut_lengthened_or_exchanged_is_caught(void **state) {
    (void)state;
    struct outcome o;
    assert_int_equal(save(path_of("older").s, 2, 6, 4, &o), ST_OK);
    assert_int_equal(save(path_of("same-step").s, 2, 7, 5, &o), ST_OK);
    const struct path directory_path = path_of("flips/step-7");
    const char *directory = directory_path.s;
    char kept[PATH_MAX], path[PATH_MAX], other[PATH_MAX];
    for (size_t f = 0; f < sizeof FILES / sizeof *FILES; f++) {
        snprintf(path, sizeof path, "%s/%s", directory, FILES[f]);
        snprintf(kept, sizeof kept, "%s/kept", root);
        assert_int_equal(rename(path, kept), 0);
        CLEANUP(closep) int from = open(kept, O_RDONLY);
        struct stat st;
        assert_int_equal(fstat(from, &st), 0);
        CLEANUP(freep) char *bytes = malloc((size_t)st.st_size + 1);
        struct err e;
        assert_int_equal(fd_read_exact(from, bytes, (size_t)st.st_size, &e), ST_OK);
        bytes[st.st_size] = ' ';
        const size_t sizes[] = { 0, 1, 8, (size_t)st.st_size / 2, (size_t)st.st_size - 1, (size_t)st.st_size + 1 };
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            assert_int_equal(file_write_atomic(path, bytes, sizes[s], 0644, &e), ST_OK);
            assert_lost(directory, FILES[f]);
        }
        /* Taken from the checkpoint of another step, and from another model's of the same step. */
        for (int i = 0; i < 2; i++) {
            unlink(path);
            snprintf(other, sizeof other, "%s/%s/%s", root, i ? "same-step/step-7" : "older/step-6", FILES[f]);
            assert_int_equal(link(other, path), 0);
            assert_lost(directory, "flips/step-7");
        }
        unlink(path);
        assert_int_equal(rename(kept, path), 0);
    }
    /* A rank's pair together. */
    for (int i = 0; i < 2; i++) {
        for (int f = 3; f < 5; f++) {
            snprintf(path, sizeof path, "%s/%s", directory, FILES[f]);
            snprintf(other, sizeof other, "%s/same-step/step-7/%s", root, FILES[f]);
            snprintf(kept, sizeof kept, "%s/kept", root);
            assert_int_equal(rename(path, kept), 0);
            assert_int_equal(rename(other, path), 0);
            assert_int_equal(rename(kept, other), 0);
        }
        if (i == 0)
            assert_lost(directory, "has another");
    }
    assert_loads(directory, 3);
    struct err e;
    struct checkpoint_reader *r = NULL;
    assert_int_equal(checkpoint_reader_open(path_of("flips/step-8").s, NULL, &r, &e), ST_NOT_FOUND);
}

/* In a child: writes a checkpoint of seed 8 over the existing files, under the planned fault. */
static int write_in_child(const char *directory, enum fault fault, int at) {
    pid_t child = fork();
    if (child == 0) {
        plan.fault = fault;
        plan.at = at;
        struct outcome o;
        _exit(save(directory, 1, 9, 8, &o) == ST_OK ? 0 : 1);
    }
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128;
}

static bool same_content(const char *a, const char *b) {
    struct bytes x, y;
    struct err e;
    bytes_init(&x, 64 << 20);
    bytes_init(&y, 64 << 20);
    assert_int_equal(file_read(a, &x, &e), ST_OK);
    assert_int_equal(file_read(b, &y, &e), ST_OK);
    bool same = x.len == y.len && memcmp(x.data, y.data, x.len) == 0;
    bytes_done(&x);
    bytes_done(&y);
    return same;
}

static void after_a_crash_at_any_call_a_file_is_whole_or_absent(void **state) {
    (void)state;
    struct outcome o;
    assert_int_equal(save(path_of("whole").s, 1, 9, 8, &o), ST_OK);
    const struct path directory_path = path_of("crash");
    const char *directory = directory_path.s;
    int crashes = 0, loads = 0, ended;
    for (int fault = FAULT_CRASH_BEFORE; fault <= FAULT_CRASH_AFTER; fault++) {
        for (int at = 0; (ended = write_in_child(directory, (enum fault)fault, at)) == 9; at++, crashes++) {
            for (int f = 0; f < 3; f++) {
                char path[PATH_MAX], whole[PATH_MAX];
                snprintf(path, sizeof path, "%s/step-9/%s", directory, FILES[f]);
                snprintf(whole, sizeof whole, "%s/whole/step-9/%s", root, FILES[f]);
                if (access(path, F_OK) == 0)
                    assert_true(same_content(path, whole));
            }
            struct checkpoint_reader *r = NULL;
            struct err e;
            loads += checkpoint_reader_open(path_of("crash/step-9").s, NULL, &r, &e) == ST_OK;
            checkpoint_reader_close(r);
            assert_int_equal(dir_remove(directory, &e), ST_OK);
        }
        assert_int_equal(ended, 0);
        assert_loads(path_of("crash/step-9").s, 8);
        struct err e;
        assert_int_equal(dir_remove(directory, &e), ST_OK);
    }
    assert_true(crashes > 30);
    assert_true(loads >= 2 && loads < crashes / 2); /* complete only at the very end */
}

static void a_crash_while_an_older_checkpoint_is_replaced_never_leaves_a_mixture(void **state) {
    (void)state;
    const struct path directory_path = path_of("replace");
    const char *directory = directory_path.s;
    int ended = 9, old = 0, new = 0, neither = 0;
    for (int at = 0; ended == 9; at++) {
        struct outcome o;
        assert_int_equal(save(directory, 1, 9, 1, &o), ST_OK);
        char old_weights[SHA256_HEX];
        memcpy(old_weights, o.weights[0], sizeof old_weights);
        ended = write_in_child(directory, FAULT_CRASH_BEFORE, at);
        struct checkpoint_reader *r = NULL;
        struct err e;
        if (checkpoint_reader_open(path_of("replace/step-9").s, NULL, &r, &e) != ST_OK) {
            neither++;
        } else {
            bool is_old = strcmp(checkpoint_reader_info(r)->weights_sha256, old_weights) == 0;
            old += is_old;
            new += !is_old;
            assert_loads(path_of("replace/step-9").s, is_old ? 1 : 8);
        }
        checkpoint_reader_close(r);
    }
    assert_int_equal(ended, 0);
    assert_true(old > 0 && new > 0 && neither > 0);
    struct err e;
    assert_int_equal(dir_remove(directory, &e), ST_OK);
}

static void a_failing_call_is_one_sentence_and_leaves_no_file(void **state) {
    (void)state;
    const struct path directory_path = path_of("errors");
    const char *directory = directory_path.s;
    int failures = 0;
    for (int at = 0;; at++) {
        plan.fault = FAULT_ERROR;
        plan.error = at % 2 ? EIO : ENOSPC;
        plan.at = at;
        atomic_store(&plan.calls, 0);
        struct outcome o;
        status_t st = save(directory, 1, 9, 8, &o);
        bool struck = atomic_load(&plan.calls) > at;
        fault_off();
        if (!struck) {
            assert_int_equal(st, ST_OK);
            break;
        }
        struct err e;
        if (st == ST_OK) /* the failed call would have removed an absent file, or created an existing folder */
            assert_loads(path_of("errors/step-9").s, 8);
        else {
            failures++;
            assert_int_equal(st, at % 2 ? ST_INTERNAL : ST_RESOURCE_EXHAUSTED);
            assert_true(o.message[0][0] == '\0' || strstr(o.message[0], "'/tmp") != NULL); /* "" = open's failure */
            struct stat left;
            assert_int_equal(stat(path_of("errors/step-9").s, &left), -1);
        }
        assert_int_equal(dir_remove(directory, &e), ST_OK);
    }
    assert_true(failures > 15);
}

static void a_file_gets_its_name_after_its_bytes_are_on_disk(void **state) {
    (void)state;
    plan.trace = true;
    struct outcome o;
    assert_int_equal(save(path_of("order").s, 1, 9, 8, &o), ST_OK);
    plan.trace = false;
    const char *at = plan.log;
    static const char *const order[] = { "rank-0.safetensors", "rank-0.json", "manifest.json" };
    for (int f = 0; f < 3; f++) {
        const char *steps[] = { "write %s.tmp\n", "fsync %s.tmp\n", "renameat %s\n", "fsync step-9\n" };
        for (int s = 0; s < 4; s++) {
            char line[100];
            snprintf(line, sizeof line, steps[s], order[f]);
            const char *found = strstr(at, line);
            if (!found)
                fail_msg("'%s' does not follow in:\n%s", line, at);
            at = found + strlen(line);
        }
        assert_null(strstr(at, order[f])); /* nothing happens to it afterwards */
    }
}

static void a_full_disk_is_reported_and_the_next_checkpoint_fits_again(void **state) {
    (void)state;
    const struct path disk_path = path_of("disk");
    const char *disk = disk_path.s;
    assert_int_equal(mkdir(disk, 0755), 0);
    pid_t child = fork();
    if (child == 0) {
        if ((unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) ||
            mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) != 0)
            _exit(77);
        if (mount("none", disk, "tmpfs", 0, "size=4m") != 0)
            _exit(77);
        char filler[PATH_MAX];
        snprintf(filler, sizeof filler, "%s/filler", disk);
        CLEANUP(closep) int fd = open(filler, O_WRONLY | O_CREAT, 0644);
        struct outcome o;
        if (fd < 0 || posix_fallocate(fd, 0, 3 << 20) != 0)
            _exit(77);
        if (save(disk, 2, 1, 1, &o) == ST_OK && o.status[1] == ST_OK)
            _exit(1);
        int reported = 0; /* by at least one rank; a rank with enough space may only report that the other failed */
        for (int r = 0; r < 2; r++)
            reported += o.status[r] == ST_RESOURCE_EXHAUSTED && strstr(o.message[r], "No space left on device") != NULL;
        if (reported == 0)
            _exit(2);
        closep(&fd);
        unlink(filler);
        if (save(disk, 2, 2, 1, &o) != ST_OK || o.status[1] != ST_OK)
            _exit(3);
        struct checkpoint_reader *r = NULL;
        struct err e;
        char step[PATH_MAX];
        snprintf(step, sizeof step, "%s/step-2", disk);
        _exit(checkpoint_reader_open(step, NULL, &r, &e) == ST_OK ? 0 : 4);
    }
    int status;
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77)
        skip(); /* no right to mount a tmpfs here */
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_flipped_bit_anywhere_is_caught),
        cmocka_unit_test(a_file_that_is_missing_or_cannot_be_read_is_no_lost_data),
        cmocka_unit_test(a_file_cut_lengthened_or_exchanged_is_caught),
        cmocka_unit_test(after_a_crash_at_any_call_a_file_is_whole_or_absent),
        cmocka_unit_test(a_crash_while_an_older_checkpoint_is_replaced_never_leaves_a_mixture),
        cmocka_unit_test(a_failing_call_is_one_sentence_and_leaves_no_file),
        cmocka_unit_test(a_file_gets_its_name_after_its_bytes_are_on_disk),
        cmocka_unit_test(a_full_disk_is_reported_and_the_next_checkpoint_fits_again),
    };
    return cmocka_run_group_tests(tests, make_root, remove_root);
}
