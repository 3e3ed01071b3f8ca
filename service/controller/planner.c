/* Makes a plan with the program `trainyard-train plan`. Per plan:
 *
 *   start         spawns the program with three pipes, a short environment and limits of memory and CPU time. It reads
 *                 files only below the data roots
 *   talk          one poll loop: writes the spec as JSON to the program's standard input, and reads its answer (JSON)
 *                 and its error messages until both pipes are closed or the deadline has come
 *   reap, judge   waits for the program. Exit 2 is a bad spec, and the last line of the error output is the reason. A
 *                 signal means that a limit was exceeded. After exit 0 the answer is parsed
 *
 * `busy` is held while a plan is made, so that a second caller is refused at once. `lock` guards the pid: planner_stop
 * kills the program only while its pid is valid. Therefore reap clears the pid before it collects the process. */
#include "service/controller/planner.h"

#include "api/codec/text.h"
#include "base/alloc.h"
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

enum {
    MAX_ARGUMENTS = 4 + 4 * PLANNER_MAX_PATHS,
    MAX_ENVIRONMENT = 8,
    MAX_ANSWER_BYTES = 4 << 20,
    MAX_SENTENCE_BYTES = 64 << 10,
    EXIT_BAD_SPEC = 2
};

struct planner {
    pthread_mutex_t busy; /* while a plan is made */
    pthread_mutex_t lock; /* guards pid and stopped */
    pid_t pid;            /* of the program that runs; 0 = none */
    bool stopped;
    char *program; /* NULL = trainyard-train in the directory of this program */
    char *roots[PLANNER_MAX_PATHS], *except[PLANNER_MAX_PATHS];
    size_t n_roots, n_except;
};

static void copy(char *to[PLANNER_MAX_PATHS], size_t *to_n, const char *const *from, size_t n) {
    for (size_t i = 0; i < n && i < PLANNER_MAX_PATHS; i++)
        to[(*to_n)++] = alloc_copy_text(from[i]);
}

struct planner *planner_new(const char *program, const struct planner_data *data) {
    struct planner *p = alloc_zeroed(1, sizeof *p);
    pthread_mutex_init(&p->busy, NULL);
    pthread_mutex_init(&p->lock, NULL);
    if (program)
        p->program = alloc_copy_text(program);
    if (data) {
        copy(p->roots, &p->n_roots, data->roots, data->n_roots);
        copy(p->except, &p->n_except, data->except, data->n_except);
    }
    return p;
}

void planner_except(struct planner *p, const char *path) {
    if (p->n_except < PLANNER_MAX_PATHS)
        p->except[p->n_except++] = alloc_copy_text(path);
}

struct planner *planner_free(struct planner *p) {
    if (!p)
        return NULL;
    for (size_t i = 0; i < p->n_roots; i++)
        free(p->roots[i]);
    for (size_t i = 0; i < p->n_except; i++)
        free(p->except[i]);
    free(p->program);
    pthread_mutex_destroy(&p->busy);
    pthread_mutex_destroy(&p->lock);
    free(p);
    return NULL;
}

/* ---- the program ---- */

struct run {
    pid_t pid;
    int in, out, error; /* this process's ends of the pipes; -1 = closed */
    struct bytes spec;  /* the program's input */
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

/* Fills list, which ends with NULL and points into texts. */
static void make_environment(char texts[MAX_ENVIRONMENT][PATH_MAX], const char *list[MAX_ENVIRONMENT + 1]) {
    static const char *const kept[] = { "PATH",         "HOME",          "TMPDIR",       "LANG",
                                        "ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS" };
    _Static_assert(sizeof kept / sizeof *kept <= MAX_ENVIRONMENT, "the environment has space for all");
    size_t n = 0;
    for (size_t i = 0; i < sizeof kept / sizeof *kept; i++) {
        const char *value = getenv(kept[i]);
        if (value && snprintf(texts[n], PATH_MAX, "%s=%s", kept[i], value) < PATH_MAX) {
            list[n] = texts[n];
            n++;
        }
    }
    list[n] = NULL;
}

/* The program's descriptors 0, 1 and 2 are ends of the pipes. */
static status_t spawn_program(const char *path, char *const argv[], int pipes[3][2], pid_t *ret, struct err *e) {
    for (int i = 0; i < 3; i++)
        if (pipe2(pipes[i], O_CLOEXEC) < 0)
            return err_errno(e, "open a pipe to '%s'", path);
    char texts[MAX_ENVIRONMENT][PATH_MAX];
    const char *environment[MAX_ENVIRONMENT + 1];
    make_environment(texts, environment);
    const struct process p = { .program = path,
                               .argv = (const char *const *)argv,
                               .environ = environment,
                               .fds = { { pipes[0][0], 0 }, { pipes[1][1], 1 }, { pipes[2][1], 2 } },
                               .n_fds = 3 };
    return process_start(&p, ret, e);
}

/* Limits the program after its start. It first waits for the spec, so that the limits apply before it plans. */
static void limit_program(pid_t pid) {
    struct rlimit memory = { PLANNER_MAX_BYTES, PLANNER_MAX_BYTES };
    struct rlimit cpu = { 4 * PLANNER_MAX_MS / 1000, 4 * PLANNER_MAX_MS / 1000 };
    prlimit(pid, RLIMIT_AS, &memory, NULL);
    prlimit(pid, RLIMIT_CPU, &cpu, NULL); /* ends the program if this process dies meanwhile */
}

static status_t start(const struct planner *p, struct run *r, struct err *e) {
    char path[PATH_MAX];
    TRY(find_program(p, path, e));
    char *argv[MAX_ARGUMENTS + 1] = { path, (char *)"plan", (char *)"-", (char *)"--json" };
    int argc = 4;
    static const char *const nothing[] = { "" }; /* no file may be read */
    for (size_t i = 0; i < (p->n_roots ? p->n_roots : 1); i++) {
        argv[argc++] = (char *)"--data-root";
        argv[argc++] = p->n_roots ? p->roots[i] : (char *)nothing[0];
    }
    for (size_t i = 0; i < p->n_except; i++) {
        argv[argc++] = (char *)"--data-except";
        argv[argc++] = p->except[i];
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

static void feed(struct run *r) {
    ssize_t n = write(r->in, r->spec.data + r->written, r->spec.len - r->written);
    if (n > 0)
        r->written += (size_t)n;
    if (r->written == r->spec.len || (n < 0 && errno != EAGAIN && errno != EINTR))
        closep(&r->in);
}

static status_t drain(int *fd, struct bytes *to, struct err *e) {
    char piece[4096];
    ssize_t n = read(*fd, piece, sizeof piece);
    if (n > 0)
        return bytes_append(to, piece, (size_t)n, e);
    if (n == 0 || errno != EINTR)
        closep(fd);
    return ST_OK;
}

static status_t talk(struct run *r, deadline_ms_t deadline, struct err *e) {
    while (r->out >= 0 || r->error >= 0) {
        struct pollfd at[] = { { r->in, POLLOUT, 0 }, { r->out, POLLIN, 0 }, { r->error, POLLIN, 0 } };
        int n = poll(at, 3, deadline_poll_ms(deadline));
        if (n == 0)
            return err_set(e, ST_DEADLINE_EXCEEDED, "the plan took longer than %d s", PLANNER_MAX_MS / 1000);
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

/* The last line of the error output, without the program's name. */
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
    struct codec_options limits = { .text_bytes = MAX_ANSWER_BYTES };
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

/* Starts the program and records its pid under the lock, so that planner_stop can kill it until it is reaped. */
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
    closep(&r->in);
    closep(&r->out);
    closep(&r->error);
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
    bytes_init(&r.answer, MAX_ANSWER_BYTES);
    bytes_init(&r.sentences, MAX_SENTENCE_BYTES);
    status_t st = codec_print_json(&spec->base, 0, &r.spec, e);
    if (st == ST_OK)
        st = plan(p, &r, deadline_in(time_ms < PLANNER_MAX_MS ? time_ms : PLANNER_MAX_MS), ret, e);
    bytes_done(&r.spec);
    bytes_done(&r.answer);
    bytes_done(&r.sentences);
    pthread_mutex_unlock(&p->busy);
    return st;
}
