/* Starts a worker with pipes to the agent.
 *
 * spawn_worker opens four pipes, one each for commands, records, stdout and stderr. The agent's ends are non-blocking;
 * the child's ends are duplicated to numbers from FD_FLOOR up, and process_start maps them to 1-4. All descriptors are
 * close-on-exec, so a worker inherits only its own. The environment is built from a list of allowed names and the
 * values for this worker. After the start the agent closes the child's ends, opens a pidfd and reads the start time
 * from /proc, which distinguishes this process from a later one with the same pid. If one of these steps fails, the
 * child is killed and reaped, so a failed start leaves nothing behind. */
#include "executor/agent/spawn.h"

#include "base/alloc.h"
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
#include <sys/wait.h>
#include <unistd.h>

enum {
    /* The child's ends are moved above this number, so that moving one to 0-4 never closes another. */
    FD_FLOOR = 16,
    /* Space for the records of a few steps, so that a worker does not wait for each turn of the agent's loop. */
    RECORD_PIPE_BYTES = 256 << 10,
    ENV_MAX = 32,
    STAT_MAX_BYTES = 1024,
};

/* The variables of the agent's environment that a worker gets: no variable that controls a library (LD_*, OMP_*,
 * GLIBC_TUNABLES), since --library-path names the libraries' folders. The sanitizer builds need the sanitizers'
 * options. */
static const char *const env_kept[] = { "PATH",         "HOME",          "TMPDIR",       "TZ",
                                        "ASAN_OPTIONS", "UBSAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS" };

struct env {
    char *list[ENV_MAX + 1];
    size_t n;
};

static void env_done(struct env *env) {
    while (env->n)
        free(env->list[--env->n]);
}

static void env_add(struct env *env, const char *name, const char *value) {
    env->list[env->n++] = alloc_format("%s=%s", name, value);
}

static void env_make(struct env *env, const struct spawn_options *o) {
    char number[16];
    snprintf(number, sizeof number, "%d", o->threads);
    for (size_t i = 0; i < sizeof env_kept / sizeof *env_kept; i++) {
        const char *value = getenv(env_kept[i]);
        if (value)
            env_add(env, env_kept[i], value);
    }
    for (size_t i = 0; i < o->n_kept; i++) {
        const char *value = getenv(o->kept[i]);
        if (value)
            env_add(env, o->kept[i], value);
    }
    env_add(env, "LANG", "C.UTF-8");
    env_add(env, "OMP_NUM_THREADS", number);
    env_add(env, "OMP_DYNAMIC", "false");
    env_add(env, "CUDA_VISIBLE_DEVICES", o->device ? o->device : "");
    if (o->device && o->library_path)
        env_add(env, "LD_LIBRARY_PATH", o->library_path);
    env_add(env, "GOMP_SPINCOUNT", "1000");
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
    env_make(&env, o);
    status_t st = process_start(&p, ret, e);
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
        fcntl(s.records, F_SETPIPE_SZ,
              RECORD_PIPE_BYTES); /* may be refused because of the user's quota: the default size works too */
        st = process_run(options, &c, &s.pid, e);
    }
    child_ends_close(&c);
    if (st != ST_OK) {
        spawned_close(&s);
        return st;
    }
    s.pidfd = process_pidfd(s.pid);
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
    char path[32], text[STAT_MAX_BYTES];
    snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
    CLEANUP(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (n < 0)
        return errno == ENOENT || errno == ESRCH ? err_set(e, ST_NOT_FOUND, "there is no process %d", (int)pid)
                                                 : err_errno(e, "read '%s'", path);
    text[n] = '\0';
    /* Field 2, the program's name in parentheses, may contain any character: count from the last parenthesis. */
    char *at = strrchr(text, ')');
    for (int field = 2; at && field < 22; field++)
        at = strchr(at + 1, ' ');
    if (!at)
        return err_set(e, ST_INTERNAL, "'%s' has no start time", path);
    *ret = strtoll(at, NULL, 10);
    return ST_OK;
}
