#include "service/controller/planner.h"

#include "api/codec/text.h"
#include "base/bytes.h"
#include "base/clock.h"
#include "base/limits.h"
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ROOTS_MOST = 16, ANSWER_MOST = 4 << 20, SENTENCES_MOST = 64 << 10, EXIT_BAD_SPEC = 2 };

struct planner {
    pthread_mutex_t busy; /* while a plan is made */
    pthread_mutex_t lock; /* guards pid and stopped */
    pid_t pid;            /* of the program that runs; 0 = none */
    bool stopped;
    char *program; /* NULL = the one beside this */
    char *roots[ROOTS_MOST];
    size_t n_roots;
};

struct planner *planner_new(const char *program, const char *const *roots, size_t n) {
    struct planner *p = calloc(1, sizeof *p);
    if (!p)
        return NULL;
    pthread_mutex_init(&p->busy, NULL);
    pthread_mutex_init(&p->lock, NULL);
    if (program && !(p->program = strdup(program)))
        return planner_free(p);
    for (size_t i = 0; i < n && i < ROOTS_MOST; i++)
        if (!(p->roots[p->n_roots++] = strdup(roots[i])))
            return planner_free(p);
    return p;
}

struct planner *planner_free(struct planner *p) {
    if (!p)
        return NULL;
    for (size_t i = 0; i < p->n_roots; i++)
        free(p->roots[i]);
    free(p->program);
    pthread_mutex_destroy(&p->busy);
    pthread_mutex_destroy(&p->lock);
    free(p);
    return NULL;
}

/* ---- the program ---- */

struct run {
    pid_t pid;
    int in, out, error; /* our ends of its descriptors; -1 = closed */
    struct bytes spec;  /* what it reads */
    size_t written;
    struct bytes answer, sentences;
};

static status_t find_program(const struct planner *p, char path[PATH_MAX], struct err *e) {
    if (p->program) {
        snprintf(path, PATH_MAX, "%s", p->program);
        return ST_OK;
    }
    TRY(process_beside("trainyard-train", path, PATH_MAX, e));
    return access(path, X_OK) == 0 ? ST_OK : err_set(e, ST_UNAVAILABLE, "%s, which plans, is not there", path);
}

/* The pipes' ends become its 0, 1 and 2. */
static status_t spawn_program(const char *path, char *const argv[], int pipes[3][2], pid_t *ret, struct err *e) {
    for (int i = 0; i < 3; i++)
        if (pipe2(pipes[i], O_CLOEXEC) < 0)
            return err_errno(e, "open a pipe to '%s'", path);
    const struct process p = { .program = path,
                               .argv = (const char *const *)argv,
                               .fds = { { pipes[0][0], 0 }, { pipes[1][1], 1 }, { pipes[2][1], 2 } },
                               .n_fds = 3 };
    return process_start(&p, ret, e);
}

/* It waits for the spec before it does anything, so these come in time. */
static void limit_program(pid_t pid) {
    struct rlimit memory = { PLANNER_MOST_BYTES, PLANNER_MOST_BYTES };
    struct rlimit cpu = { 4 * PLANNER_MOST_MS / 1000, 4 * PLANNER_MOST_MS / 1000 };
    prlimit(pid, RLIMIT_AS, &memory, NULL);
    prlimit(pid, RLIMIT_CPU, &cpu, NULL); /* should this process die meanwhile */
}

static status_t start(const struct planner *p, struct run *r, struct err *e) {
    char path[PATH_MAX];
    TRY(find_program(p, path, e));
    char *argv[4 + 2 * ROOTS_MOST + 1] = { path, (char *)"plan", (char *)"-", (char *)"--json" };
    int argc = 4;
    static const char *const nothing[] = { "/dev/null" }; /* a root below which no file lies */
    for (size_t i = 0; i < (p->n_roots ? p->n_roots : 1); i++) {
        argv[argc++] = (char *)"--data-root";
        argv[argc++] = p->n_roots ? p->roots[i] : (char *)nothing[0];
    }
    int pipes[3][2] = { { -1, -1 }, { -1, -1 }, { -1, -1 } };
    status_t st = spawn_program(path, argv, pipes, &r->pid, e);
    closep(&pipes[0][0]);
    closep(&pipes[1][1]);
    closep(&pipes[2][1]);
    r->in = pipes[0][1];
    r->out = pipes[1][0];
    r->error = pipes[2][0];
    TRY(st);
    fcntl(r->in, F_SETFL, O_NONBLOCK);
    limit_program(r->pid);
    return ST_OK;
}

static void shut(int *fd) {
    closep(fd);
    *fd = -1;
}

static void feed(struct run *r) {
    ssize_t n = write(r->in, r->spec.data + r->written, r->spec.len - r->written);
    if (n > 0)
        r->written += (size_t)n;
    if (r->written == r->spec.len || (n < 0 && errno != EAGAIN && errno != EINTR))
        shut(&r->in);
}

static status_t drain(int *fd, struct bytes *to, struct err *e) {
    char piece[4096];
    ssize_t n = read(*fd, piece, sizeof piece);
    if (n > 0)
        return bytes_append(to, piece, (size_t)n, e);
    if (n == 0 || errno != EINTR)
        shut(fd);
    return ST_OK;
}

static status_t talk(struct run *r, deadline_ms_t deadline, struct err *e) {
    while (r->out >= 0 || r->error >= 0) {
        struct pollfd at[] = { { r->in, POLLOUT, 0 }, { r->out, POLLIN, 0 }, { r->error, POLLIN, 0 } };
        int n = poll(at, 3, deadline_poll_ms(deadline));
        if (n == 0)
            return err_set(e, ST_DEADLINE_EXCEEDED, "the plan took longer than %d s", PLANNER_MOST_MS / 1000);
        if (n < 0)
            continue;
        if (at[0].revents)
            feed(r);
        if (at[1].revents)
            TRY(drain(&r->out, &r->answer, e));
        if (at[2].revents)
            TRY(drain(&r->error, &r->sentences, e));
    }
    return ST_OK;
}

/* ---- its answer ---- */

/* The last line, without the program's name. */
static const char *last_sentence(struct bytes *sentences) {
    char *text = sentences->data;
    if (!text)
        return "the plan's program ended without a word";
    for (size_t n = sentences->len; n > 0 && (text[n - 1] == '\n' || text[n - 1] == '\r'); n--)
        text[n - 1] = '\0';
    char *line = strrchr(text, '\n');
    line = line ? line + 1 : text;
    static const char name[] = "trainyard-train: ";
    return strncmp(line, name, sizeof name - 1) == 0 ? line + sizeof name - 1 : line;
}

static status_t judge(struct run *r, int status, Trainyard__V1__Plan **ret, struct err *e) {
    if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_BAD_SPEC)
        return err_set(e, ST_INVALID_ARGUMENT, "%s", last_sentence(&r->sentences));
    if (WIFSIGNALED(status))
        return err_set(e, ST_RESOURCE_EXHAUSTED, "the plan was ended by signal %d, as one that takes too much is",
                       WTERMSIG(status));
    if (WEXITSTATUS(status) != 0)
        return err_set(e, ST_INTERNAL, "%s", last_sentence(&r->sentences));
    struct codec_limits limits = { .text_bytes = ANSWER_MOST };
    ProtobufCMessage *plan = NULL;
    status_t st = codec_parse(&trainyard__v1__plan__descriptor, r->answer.data ? r->answer.data : "", r->answer.len,
                              &limits, &plan, e);
    if (st != ST_OK)
        return err_prefix(e, ST_INTERNAL, "the plan's answer: ");
    *ret = (Trainyard__V1__Plan *)plan;
    return ST_OK;
}

void planner_stop(struct planner *p) {
    pthread_mutex_lock(&p->lock);
    p->stopped = true;
    if (p->pid > 0)
        kill(p->pid, SIGKILL);
    pthread_mutex_unlock(&p->lock);
}

/* A program that started is known to planner_stop until it is reaped. */
static status_t start_known(struct planner *p, struct run *r, struct err *e) {
    pthread_mutex_lock(&p->lock);
    status_t st = p->stopped ? err_set(e, ST_UNAVAILABLE, "the controller is stopping") : start(p, r, e);
    p->pid = r->pid;
    pthread_mutex_unlock(&p->lock);
    return st;
}

static int reap(struct planner *p, pid_t pid) {
    int status = 0;
    siginfo_t ended;
    while (waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOWAIT) < 0 && errno == EINTR)
        ;
    pthread_mutex_lock(&p->lock);
    p->pid = 0;
    pthread_mutex_unlock(&p->lock);
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    return status;
}

static status_t plan(struct planner *p, struct run *r, deadline_ms_t deadline, Trainyard__V1__Plan **ret,
                     struct err *e) {
    status_t st = start_known(p, r, e);
    if (st == ST_OK)
        st = talk(r, deadline, e);
    shut(&r->in);
    shut(&r->out);
    shut(&r->error);
    int status = 0;
    if (r->pid > 0) {
        if (st != ST_OK)
            kill(r->pid, SIGKILL);
        status = reap(p, r->pid);
    }
    return st == ST_OK ? judge(r, status, ret, e) : st;
}

status_t planner_run(struct planner *p, const Trainyard__V1__JobSpec *spec, int64_t time_ms, Trainyard__V1__Plan **ret,
                     struct err *e) {
    if (pthread_mutex_trylock(&p->busy) != 0)
        return err_set(e, ST_UNAVAILABLE, "another plan is being made: try again in a moment");
    struct run r = { .in = -1, .out = -1, .error = -1 };
    bytes_init(&r.spec, 4 * LIMIT_SPEC_BYTES);
    bytes_init(&r.answer, ANSWER_MOST);
    bytes_init(&r.sentences, SENTENCES_MOST);
    status_t st = codec_print_json(&spec->base, 0, &r.spec, e);
    if (st == ST_OK)
        st = plan(p, &r, deadline_in(time_ms < PLANNER_MOST_MS ? time_ms : PLANNER_MOST_MS), ret, e);
    bytes_done(&r.spec);
    bytes_done(&r.answer);
    bytes_done(&r.sentences);
    pthread_mutex_unlock(&p->busy);
    return st;
}
