/* The parent forks the ranks before any thread exists, with a socket pair to each. For the rendezvous it reads every
 * rank's address and then sends all addresses to every rank. Then it waits for the ranks: the first one that fails
 * gives the exit code, since the others then fail because they lose it. The kernel kills the ranks if the parent
 * dies. */
#include "executor/worker/local.h"

#include "base/cleanup.h"
#include "base/file.h"
#include "base/limits.h"
#include "executor/worker/commands.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>

enum { TIMEOUT_MS = 60000 };

struct child {
    pid_t pid;
    int fd; /* the parent's end */
};

static struct child children[LOCAL_RANKS_MAX];
static volatile sig_atomic_t n_children;

static void pass_on(int signal_number) {
    int saved = errno;
    for (int r = 0; r < n_children; r++)
        if (children[r].pid > 0)
            kill(children[r].pid, signal_number);
    errno = saved;
}

/* --- a rank's side: length and bytes up, every rank's length and bytes down ---*/

static status_t exchange_addresses(void *ctx, const void *mine, size_t n, struct bytes *all, struct err *e) {
    int fd = *(int *)ctx, world_size;
    uint32_t length = (uint32_t)n;
    if (n > LIMIT_RENDEZVOUS_BYTES)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "a rendezvous address of %zu bytes", n);
    TRY(fd_write_all(fd, &length, sizeof length, e));
    TRY(fd_write_all(fd, mine, n, e));
    if (fd_read_exact(fd, &world_size, sizeof world_size, e) != ST_OK)
        return err_set(e, ST_UNAVAILABLE, "another rank ended before the rendezvous");
    for (int r = 0; r < world_size; r++) {
        TRY(fd_read_exact(fd, &length, sizeof length, e));
        TRY(bytes_reserve(&all[r], length, e));
        TRY(fd_read_exact(fd, all[r].data + all[r].len, length, e));
        all[r].len += length;
    }
    return ST_OK;
}

static int run_rank(int rank, int ranks, int fd, local_body *body, void *ctx) {
    struct collective_config config = { .rank = rank,
                                        .world_size = ranks,
                                        .address = "127.0.0.1",
                                        .timeout_ms = TIMEOUT_MS,
                                        .rendezvous = exchange_addresses,
                                        .rendezvous_ctx = &fd };
    CLEANUP(collective_closep) struct collective *collective = NULL;
    struct err e;
    status_t st = ranks == 1 ? collective_open_alone(&collective, &e) : collective_open_gloo(&config, &collective, &e);
    if (st != ST_OK) {
        fprintf(stderr, "trainyard-train: rank %d: %s\n", rank, e.msg);
        return EXIT_FAILED;
    }
    return body(ctx, rank, collective);
}

/* --- the parent's side ---*/

static status_t start(int ranks, local_body *body, void *ctx, struct err *e) {
    pid_t parent = getpid();
    for (int r = 0; r < ranks; r++) {
        int pair[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
            return err_errno(e, "socketpair");
        fflush(NULL);
        pid_t pid = fork();
        if (pid < 0) {
            close(pair[0]);
            close(pair[1]);
            return err_errno(e, "fork");
        }
        if (pid == 0) {
            prctl(PR_SET_PDEATHSIG, SIGKILL);
            if (getppid() != parent)
                _exit(1);
            for (int other = 0; other < r; other++)
                close(children[other].fd);
            close(pair[0]);
            n_children = 0;
            int code = run_rank(r, ranks, pair[1], body, ctx);
            fflush(NULL);
            _exit(code);
        }
        close(pair[1]);
        children[r] = (struct child){ .pid = pid, .fd = pair[0] };
        n_children = r + 1;
    }
    return ST_OK;
}

/* One all-gather. A rank that ends before it closes the sockets of all others, whose reads then fail. */
static status_t rendezvous(int ranks, struct err *e) {
    struct bytes all;
    bytes_init(&all, (size_t)ranks * (LIMIT_RENDEZVOUS_BYTES + sizeof(uint32_t)) + sizeof(int));
    status_t st = bytes_append(&all, &ranks, sizeof ranks, e);
    for (int r = 0; r < ranks && st == ST_OK; r++) {
        uint32_t length = 0;
        st = fd_read_exact(children[r].fd, &length, sizeof length, e);
        if (st == ST_OK && length > LIMIT_RENDEZVOUS_BYTES)
            st = err_set(e, ST_RESOURCE_EXHAUSTED, "a rendezvous address of %u bytes", length);
        if (st == ST_OK)
            st = bytes_append(&all, &length, sizeof length, e);
        if (st == ST_OK)
            st = bytes_reserve(&all, length, e);
        if (st == ST_OK)
            st = fd_read_exact(children[r].fd, all.data + all.len, length, e);
        all.len += st == ST_OK ? length : 0;
    }
    for (int r = 0; r < ranks && st == ST_OK; r++)
        st = fd_write_all(children[r].fd, all.data, all.len, e);
    bytes_done(&all);
    for (int r = 0; r < ranks; r++) {
        close(children[r].fd);
        children[r].fd = -1;
    }
    return st;
}

static int code_of(int status) { return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status); }

static int reap(int ranks) {
    int code = 0;
    for (int left = ranks; left > 0;) {
        int status;
        pid_t pid = waitpid(-1, &status, 0);
        if (pid < 0 && errno == EINTR)
            continue;
        if (pid < 0)
            break;
        for (int r = 0; r < ranks; r++)
            if (children[r].pid == pid)
                children[r].pid = 0;
        left--;
        if (!code)
            code = code_of(status);
    }
    return code;
}

status_t local_run(int ranks, local_body *body, void *ctx, int *ret_code, struct err *e) {
    if (ranks < 1 || ranks > LOCAL_RANKS_MAX)
        return err_set(e, ST_INVALID_ARGUMENT, "%d ranks on one machine: 1 to %d are allowed", ranks, LOCAL_RANKS_MAX);
    if (ranks == 1) {
        *ret_code = run_rank(0, 1, -1, body, ctx);
        return ST_OK;
    }
    struct sigaction action = { .sa_handler = pass_on };
    sigaction(SIGTERM, &action, NULL);
    sigaction(SIGINT, &(struct sigaction){ .sa_handler = SIG_IGN }, NULL); /* the terminal sends it to the ranks too */
    status_t st = start(ranks, body, ctx, e);
    if (st == ST_OK)
        status_ignore(rendezvous(ranks, NULL)); /* the ranks say why, each by itself */
    else
        pass_on(SIGKILL);
    *ret_code = reap(n_children);
    return st;
}
