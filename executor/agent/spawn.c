#include "executor/agent/spawn.h"

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/file.h"
#include "base/process.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/pidfd.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
    /* The child's ends are moved up here, so that putting one on 0-4 never closes another. */
    FD_FLOOR = 16,
    /* Records of a few steps: a worker's writer thread need not wait for every turn of the agent's loop. */
    RECORD_PIPE_BYTES = 256 << 10,
    ENV_MOST = 16,
    STAT_MOST = 1024,
};

/* What a worker may see of the agent's environment: where to find and how to print things, nothing that steers a
 * library (LD_*, OMP_*, GLIBC_TUNABLES and so on): where to look for libraries its options say. The sanitizers' options
 * are there for the sanitizer builds. */
static const char *const env_kept[] = { "PATH",         "HOME",          "TMPDIR",       "TZ",
                                        "ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS" };

struct env {
    char *list[ENV_MOST + 1];
    size_t n;
};

static void env_done(struct env *env) {
    while (env->n)
        free(env->list[--env->n]);
}

static status_t env_add(struct env *env, struct err *e, const char *name, const char *value) {
    if (asprintf(&env->list[env->n], "%s=%s", name, value) < 0) {
        env->list[env->n] = NULL;
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for a worker's environment");
    }
    env->n++;
    return ST_OK;
}

static status_t env_make(struct env *env, const struct spawn_options *o, struct err *e) {
    char number[16];
    snprintf(number, sizeof number, "%d", o->threads);
    for (size_t i = 0; i < sizeof env_kept / sizeof *env_kept; i++) {
        const char *value = getenv(env_kept[i]);
        if (value)
            TRY(env_add(env, e, env_kept[i], value));
    }
    TRY(env_add(env, e, "LANG", "C.UTF-8"));
    TRY(env_add(env, e, "OMP_NUM_THREADS", number));
    TRY(env_add(env, e, "OMP_DYNAMIC", "false"));
    TRY(env_add(env, e, "CUDA_VISIBLE_DEVICES", o->device ? o->device : ""));
    if (o->device && o->library_path)
        TRY(env_add(env, e, "LD_LIBRARY_PATH", o->library_path));
    return env_add(env, e, "GOMP_SPINCOUNT", "1000");
}

/* A pipe with one end for the child (blocking, high) and one for the agent (non-blocking). child_reads: which is which.
 */
static status_t pipe_open(bool child_reads, int *ret_child, int *ret_agent, struct err *e) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_errno(e, "open a pipe to a worker");
    int child = ends[child_reads ? 0 : 1], agent = ends[child_reads ? 1 : 0];
    *ret_child = fcntl(child, F_DUPFD_CLOEXEC, FD_FLOOR);
    close(child);
    *ret_agent = agent;
    if (*ret_child < 0 || fcntl(agent, F_SETFL, O_NONBLOCK) < 0)
        return err_errno(e, "open a pipe to a worker");
    return ST_OK;
}

struct child_ends {
    int commands, records, out, err;
};

static void child_ends_close(struct child_ends *c) {
    closep(&c->commands);
    closep(&c->records);
    closep(&c->out);
    closep(&c->err);
}

static status_t process_run(const struct spawn_options *o, const struct child_ends *c, pid_t *ret, struct err *e) {
    struct env env = { .n = 0 };
    const struct process p = {
        .program = o->program,
        .argv = o->argv,
        .environ = (const char *const *)env.list,
        .fds = { { PROCESS_NULL, 0 }, { c->out, 1 }, { c->err, 2 }, { c->commands, 3 }, { c->records, 4 } },
        .n_fds = 5,
        .group = PROCESS_OWN_GROUP,
    };
    status_t st = env_make(&env, o, e);
    if (st == ST_OK)
        st = process_start(&p, ret, e);
    env_done(&env);
    return st;
}

void spawned_close(struct spawned *s) {
    closep(&s->pidfd);
    closep(&s->commands);
    closep(&s->records);
    closep(&s->out);
    closep(&s->err);
}

status_t spawn_worker(const struct spawn_options *options, struct spawned *ret, struct err *e) {
    struct spawned s = { .pidfd = -1, .commands = -1, .records = -1, .out = -1, .err = -1 };
    struct child_ends c = { -1, -1, -1, -1 };
    status_t st = pipe_open(true, &c.commands, &s.commands, e);
    if (st == ST_OK)
        st = pipe_open(false, &c.records, &s.records, e);
    if (st == ST_OK)
        st = pipe_open(false, &c.out, &s.out, e);
    if (st == ST_OK)
        st = pipe_open(false, &c.err, &s.err, e);
    if (st == ST_OK) {
        fcntl(s.records, F_SETPIPE_SZ, RECORD_PIPE_BYTES); /* refused beyond a user's quota: the default does too */
        st = process_run(options, &c, &s.pid, e);
    }
    child_ends_close(&c);
    if (st != ST_OK) {
        spawned_close(&s);
        return st;
    }
    s.pidfd = pidfd_open(s.pid, 0);
    st = s.pidfd < 0 ? err_errno(e, "open a handle of worker %d", (int)s.pid)
                     : spawn_start_time(s.pid, &s.start_time, e);
    if (st != ST_OK) {
        kill(s.pid, SIGKILL);
        waitpid(s.pid, NULL, 0);
        spawned_close(&s);
        return st;
    }
    *ret = s;
    return ST_OK;
}

status_t spawn_start_time(pid_t pid, int64_t *ret, struct err *e) {
    char path[32], text[STAT_MOST];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    CLEANUP(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (n < 0)
        return errno == ENOENT || errno == ESRCH ? err_set(e, ST_NOT_FOUND, "there is no process %d", (int)pid)
                                                 : err_errno(e, "read '%s'", path);
    text[n] = '\0';
    /* Field 2, the program's name in parentheses, may hold anything: count from its last parenthesis. */
    char *at = strrchr(text, ')');
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    if (!at)
        return err_set(e, ST_INTERNAL, "'%s' has no start time", path);
    *ret = strtoll(at, NULL, 10);
    return ST_OK;
}
