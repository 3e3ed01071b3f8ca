#include "executor/agent/libraries.h"

#include "base/clock.h"
#include "executor/agent/spawn.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* What it says until it has ended, its first line; false when that takes too long. */
static bool listen_to(const struct spawned *s, int most_ms, char *ret, size_t size) {
    const int64_t until = deadline_in(most_ms);
    struct pollfd fds[] = { { .fd = s->out, .events = POLLIN }, { .fd = s->pidfd, .events = POLLIN } };
    size_t n = 0;
    while (!(fds[1].revents & POLLIN)) {
        const int64_t left = until - clock_mono_ms();
        if (left <= 0 || poll(fds, 2, (int)left) == 0)
            return false;
        const ssize_t got = read(s->out, ret + n, size - 1 - n); /* never waits */
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

status_t libraries_check(const char *worker, const char *library_path, int most_ms, struct libraries *ret,
                         struct err *e) {
    const char *argv[] = { worker, "--check-cuda", NULL };
    const struct spawn_options options = {
        .program = worker, .argv = argv, .threads = 1, .device = "", .library_path = library_path
    };
    struct spawned s;
    char said[LIBRARIES_SENTENCE_BYTES] = "";
    int how = 0;
    TRY(spawn_worker(&options, &s, e));
    const bool ended = listen_to(&s, most_ms, said, sizeof said);
    if (!ended)
        kill(-s.pid, SIGKILL);
    while (waitpid(s.pid, &how, 0) < 0 && errno == EINTR)
        ;
    spawned_close(&s);
    const int status = ended && WIFEXITED(how) && *said ? WEXITSTATUS(how) : -1;
    if (status == LIBRARIES_EXIT_MISSING)
        return err_set(e, ST_FAILED_PRECONDITION, "%s", said);
    *ret = (struct libraries){ .lone = status == LIBRARIES_EXIT_LONE };
    if (status == 0 || ret->lone)
        memcpy(ret->without, said, sizeof said);
    return ST_OK;
}
