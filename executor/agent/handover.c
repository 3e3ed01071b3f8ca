/* Before exec every descriptor from 3 up becomes close-on-exec, whoever opened it; then those of the state are taken
 * out. If exec fails, they become close-on-exec again. The new program does the same first, so that its workers inherit
 * nothing. */
#include "executor/agent/handover.h"

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define VARIABLE "TRAINYARD_EXECUTOR_STATE"

enum { FIRST_FD = 3, STATE_MAX_BYTES = 64 << 20, VERSION_MS = 10000 };

/* ---- descriptors ---- */

static bool process_inherit(const Trainyard__Handover__HandedProcess *p, bool inherited) {
    const int fds[] = { p->pidfd, p->commands, p->records, p->out, p->err };
    bool good = true;
    for (size_t i = 0; i < sizeof fds / sizeof *fds; i++)
        good &= fds[i] >= FIRST_FD && fcntl(fds[i], F_SETFD, inherited ? 0 : FD_CLOEXEC) == 0;
    return good;
}

static bool descriptors_inherit(const Trainyard__Handover__Handover *h, bool inherited) {
    bool good = true;
    for (size_t i = 0; i < h->n_attempts; i++)
        for (size_t k = 0; k < h->attempts[i]->n_ranks; k++)
            good &= h->attempts[i]->ranks[k]->process && process_inherit(h->attempts[i]->ranks[k]->process, inherited);
    return good;
}

static status_t others_close_on_exec(struct err *e) {
    return syscall(SYS_close_range, FIRST_FD, ~0U, CLOSE_RANGE_CLOEXEC) == 0
               ? ST_OK
               : err_errno(e, "close the descriptors that are not handed over (Linux 5.11 or later is needed)");
}

/* ---- exec ---- */

/* A file that is being replaced, or lacks a library, must not end the ranks. */
static status_t program_check(const char *program, struct err *e) {
    const char *const argv[] = { program, "--version", NULL };
    const struct process p = { .program = program, .argv = argv, .fds = { { PROCESS_NULL, 1 } }, .n_fds = 1 };
    pid_t pid;
    int status = 0;
    TRY(process_start(&p, &pid, e));
    CLEANUP(closep) int handle = process_pidfd(pid);
    struct pollfd wait = { .fd = handle, .events = POLLIN };
    if (poll(&wait, 1, VERSION_MS) != 1)
        kill(pid, SIGKILL);
    waitpid(pid, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0
               ? ST_OK
               : err_set(e, ST_FAILED_PRECONDITION, "'%s --version' failed: the program cannot run", program);
}

static status_t state_write(const Trainyard__Handover__Handover *state, int *ret, struct err *e) {
    const size_t n = trainyard__handover__handover__get_packed_size(state);
    if (n > STATE_MAX_BYTES)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "the state to hand over has %zu bytes", n);
    CLEANUP(freep) uint8_t *packed = alloc_zeroed(n, 1);
    trainyard__handover__handover__pack(state, packed);
    CLEANUP(closep) int fd = memfd_create("trainyard-executor", MFD_CLOEXEC);
    if (fd < 0)
        return err_errno(e, "make a file of the state to hand over");
    TRY(fd_write_all(fd, packed, n, e));
    *ret = fd;
    fd = -1;
    return ST_OK;
}

status_t handover_exec(const char *program, char **argv, const Trainyard__Handover__Handover *state, struct err *e) {
    char number[16];
    CLEANUP(closep) int fd = -1;
    TRY(program_check(program, e));
    TRY(state_write(state, &fd, e));
    TRY(others_close_on_exec(e));
    snprintf(number, sizeof number, "%d", fd);
    if (!descriptors_inherit(state, true) || fcntl(fd, F_SETFD, 0) < 0 || setenv(VARIABLE, number, 1) < 0) {
        const status_t refused = err_errno(e, "hand over the descriptors");
        descriptors_inherit(state, false);
        return refused;
    }
    execv(program, argv);
    const status_t st = err_errno(e, "execute '%s'", program);
    unsetenv(VARIABLE);
    descriptors_inherit(state, false);
    return st;
}

/* ---- the new program ---- */

static status_t state_read(int fd, Trainyard__Handover__Handover **ret, struct err *e) {
    struct bytes b;
    char path[32];
    bytes_init(&b, STATE_MAX_BYTES);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    status_t st = file_read(path, &b, e);
    if (st == ST_OK && !(*ret = trainyard__handover__handover__unpack(NULL, b.len, (const uint8_t *)b.data)))
        st = err_set(e, ST_DATA_LOSS, "the state that was handed over is damaged");
    bytes_done(&b);
    if (st == ST_OK && (*ret)->version != HANDOVER_VERSION)
        st = err_set(e, ST_FAILED_PRECONDITION,
                     "the state that was handed over has version %d, and this program reads "
                     "version %d",
                     (int)(*ret)->version, HANDOVER_VERSION);
    if (st == ST_OK && !descriptors_inherit(*ret, false))
        st = err_set(e, ST_DATA_LOSS, "the state that was handed over names a descriptor that is not open");
    return st;
}

status_t handover_take(Trainyard__Handover__Handover **ret, struct err *e) {
    CLEANUP(handover_freep) Trainyard__Handover__Handover *h = NULL;
    const char *number = getenv(VARIABLE);
    *ret = NULL;
    if (!number)
        return ST_OK;
    CLEANUP(closep) int fd = (int)strtol(number, NULL, 10);
    unsetenv(VARIABLE);
    const status_t st = fd < FIRST_FD ? err_set(e, ST_DATA_LOSS, "$" VARIABLE " names no descriptor")
                                      : state_read(fd, &h, e);
    if (st != ST_OK) {
        syscall(SYS_close_range, FIRST_FD, ~0U, 0);
        fd = -1;
        return st;
    }
    *ret = take_ptr(&h);
    return ST_OK;
}

Trainyard__Handover__Handover *handover_free(Trainyard__Handover__Handover *h) {
    if (h)
        trainyard__handover__handover__free_unpacked(h, NULL);
    return NULL;
}

const Trainyard__Handover__HandedAttempt *handover_attempt(const Trainyard__Handover__Handover *h, int64_t job,
                                                           int32_t attempt) {
    for (size_t i = 0; h && i < h->n_attempts; i++)
        if (h->attempts[i]->job == job && h->attempts[i]->attempt == attempt)
            return h->attempts[i];
    return NULL;
}
