#include "executor/agent/cuda_libraries.h"

#include "base/clock.h"
#include "executor/agent/spawn.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Reads the first line of the process's output until the process has ended; false if that takes longer than max_ms. */
static bool output_read(const struct spawned *s, int max_ms, char *ret, size_t size) {
    const int64_t until = deadline_in(max_ms);
    struct pollfd fds[] = { { .fd = s->out, .events = POLLIN }, { .fd = s->pidfd, .events = POLLIN } };
    size_t n = 0;
    while (!(fds[1].revents & POLLIN)) {
        const int64_t left = until - clock_mono_ms();
        if (left <= 0 || poll(fds, 2, (int)left) == 0)
            return false;
        const ssize_t got = read(s->out, ret + n, size - 1 - n); /* non-blocking */
        n += got > 0 ? (size_t)got : 0;
        fds[0].fd = got == 0 || n == size - 1 ? -1 : s->out;
    }
    ssize_t got;
    while (n < size - 1 && (got = read(s->out, ret + n, size - 1 - n)) > 0)
        n += (size_t)got;
    ret[n] = '\0';
    ret[strcspn(ret, "\n")] = '\0';
    return true;
}

status_t cuda_libraries_check(const char *worker, const char *user, const char *library_path, int max_ms,
                              struct cuda_libraries *ret, struct err *e) {
    const char *const as_user[] = { worker, "--user", user, "--check-cuda", NULL };
    const char *const as_agent[] = { worker, "--check-cuda", NULL };
    const struct spawn_options options = {
        .program = worker, .argv = user ? as_user : as_agent, .threads = 1, .device = "", .library_path = library_path
    };
    struct spawned s;
    char output[CUDA_LIBRARIES_SENTENCE_BYTES] = "";
    int wait_status = 0;
    TRY(spawn_worker(&options, &s, e));
    const bool ended = output_read(&s, max_ms, output, sizeof output);
    if (!ended)
        kill(-s.pid, SIGKILL);
    while (waitpid(s.pid, &wait_status, 0) < 0 && errno == EINTR)
        ;
    spawned_close(&s);
    const int status = ended && WIFEXITED(wait_status) && *output ? WEXITSTATUS(wait_status) : -1;
    if (status == CUDA_LIBRARIES_EXIT_MISSING)
        return err_set(e, ST_FAILED_PRECONDITION, "%s", output);
    *ret = (struct cuda_libraries){ .single_rank = status == CUDA_LIBRARIES_EXIT_SINGLE_RANK };
    if (status == 0 || ret->single_rank)
        memcpy(ret->without, output, sizeof output);
    return ST_OK;
}
