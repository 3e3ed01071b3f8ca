/* trainyard up and down: the whole service on one machine. */
#include "base/clock.h"
#include "base/cores.h"
#include "base/file.h"
#include "base/process.h"
#include "cli/command.h"
#include "cli/up/directory.h"
#include "cli/up/postgres.h"
#include "cli/up/supervise.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_EXECUTORS = 64, DOWN_TIMEOUT_MS = 120000 };

struct up_args {
    const char *dir, *listen;
    int64_t executors, slots;
    bool detach, detached;
};

/* The service of one `up`. */
struct service {
    const struct up_args *args;
    struct directory dir;
    struct postgres pg;
    struct supervise supervise;
    struct child *children; /* SUPERVISE_CHILDREN of them */
    struct log_file log;
    char address[128];
};

static void service_say(void *ctx, const char *line) {
    struct service *s = ctx;
    char stamped[1000];
    struct timespec now;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    size_t n = strftime(stamped, sizeof stamped, "%Y-%m-%dT%H:%M:%SZ ", &tm);
    snprintf(stamped + n, sizeof stamped - n, "%s\n", line);
    log_file_write(&s->log, stamped, strlen(stamped));
    fprintf(stderr, "trainyard: %s\n", line);
}

static status_t add_child(struct service *s, const char *name, int tier, struct child **ret, struct err *e) {
    struct supervise *v = &s->supervise;
    char path[DIRECTORY_PATH_BYTES + 64], file[48];
    struct child *c = &s->children[v->n];
    snprintf(file, sizeof file, "logs/%s.log", name);
    directory_join(&s->dir, file, path);
    TRY(child_init(c, name, path, e));
    c->tier = tier;
    v->children[v->n++] = c;
    *ret = c;
    return ST_OK;
}

static status_t sibling_argument(struct child *c, const char *program, struct err *e) {
    char path[PATH_MAX];
    TRY(process_beside(program, path, sizeof path, e));
    child_argument(c, "%s", path);
    return ST_OK;
}

static status_t add_initdb(struct service *s, struct err *e) {
    struct child *c;
    char line[DIRECTORY_PATH_BYTES + 80];
    TRY(add_child(s, "initdb", 0, &c, e));
    TRY(postgres_make_cluster(&s->pg, &s->dir, c, e));
    snprintf(line, sizeof line, "making a PostgreSQL cluster in %s/postgres", s->dir.path);
    service_say(s, line);
    return ST_OK;
}

static status_t add_controller(struct service *s, struct err *e) {
    struct child *c;
    char conninfo[RUNTIME_PATH_BYTES + 64];
    postgres_conninfo(&s->dir, conninfo, sizeof conninfo);
    TRY(add_child(s, "migrate", 1, &c, e));
    TRY(sibling_argument(c, "trainyard-controller", e));
    child_argument(c, "migrate");
    child_argument(c, "--database");
    child_argument(c, "%s", conninfo);
    TRY(add_child(s, "controller", 1, &c, e));
    c->ready_text = "ready ";
    TRY(sibling_argument(c, "trainyard-controller", e));
    child_argument(c, "--database");
    child_argument(c, "%s", conninfo);
    child_argument(c, "--checkpoints");
    child_argument(c, "%s/checkpoints", s->dir.path);
    child_argument(c, "--data-root"); /* as its executors: whatever this user may read */
    child_argument(c, "/");
    child_argument(c, "--listen");
    child_argument(c, "%s", s->address);
    if (s->args->listen) {
        child_argument(c, "--listen");
        child_argument(c, "%s", s->args->listen);
    }
    return ST_OK;
}

static status_t add_executor(struct service *s, int number, int64_t slots, struct err *e) {
    struct child *c;
    char name[32];
    snprintf(name, sizeof name, "executor-%d", number);
    TRY(add_child(s, name, 2, &c, e));
    c->ready_text = "ready ";
    TRY(sibling_argument(c, "trainyard-executor", e));
    child_argument(c, "--controller");
    child_argument(c, "%s", s->address);
    child_argument(c, "--directory");
    child_argument(c, "%s/executors/%d", s->dir.path, number);
    child_argument(c, "--slots");
    child_argument(c, "%lld", (long long)slots);
    if (s->args->executors > 1) {
        child_argument(c, "--gpu-part");
        child_argument(c, "%d/%lld", number, (long long)s->args->executors);
    }
    return ST_OK;
}

static int64_t default_slots(int64_t executors) {
    int64_t cores = cores_allowed();
    return cores / executors > 0 ? cores / executors : 1;
}

/* DIR/postgres is opened when the server is added, so it is added when the cluster is there. */
static status_t add_server(struct service *s, struct err *e) {
    struct child *c;
    TRY(add_child(s, "postgres", 0, &c, e));
    TRY(postgres_serve(&s->pg, &s->dir, c, e));
    TRY(add_controller(s, e));
    if (s->args->executors == 0)
        return ST_OK;
    int64_t slots = s->args->slots != OPTION_ABSENT ? s->args->slots : default_slots(s->args->executors);
    for (int i = 1; i <= s->args->executors; i++)
        TRY(add_executor(s, i, slots, e));
    return ST_OK;
}

static status_t on_task_done(void *ctx, const struct child *c, struct err *e) {
    struct service *s = ctx;
    if (strcmp(c->name, "initdb") != 0)
        return ST_OK;
    TRY(postgres_adopt_cluster(&s->dir, e));
    return add_server(s, e);
}

/* From here on nobody reads what a service in the background would print. */
static void leave_terminal(void) {
    int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int fd = 0; null >= 0 && fd <= 2; fd++)
        dup2(null, fd);
    if (null > 2)
        close(null);
}

static status_t on_all_ready(void *ctx, struct err *e) {
    struct service *s = ctx;
    TRY(directory_write_address(&s->dir, s->address, e));
    printf("ready %s\n", s->address);
    fflush(stdout);
    if (s->args->detached)
        leave_terminal();
    return ST_OK;
}

static status_t service_open(struct service *s, struct err *e) {
    char path[DIRECTORY_PATH_BYTES + 64];
    TRY(postgres_find(&s->pg, e));
    TRY(directory_find(s->args->dir, true, &s->dir, e));
    TRY(directory_lock(&s->dir, e));
    TRY(directory_prepare(&s->dir, s->pg.uid, s->pg.gid, e));
    snprintf(s->address, sizeof s->address, "unix:%s/controller.sock", s->dir.runtime);
    directory_join(&s->dir, "logs/up.log", path);
    TRY(log_file_open(&s->log, path, e));
    s->children = calloc(SUPERVISE_CHILDREN, sizeof *s->children);
    if (!s->children)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the service's children");
    return postgres_cluster_exists(&s->dir) ? add_server(s, e) : add_initdb(s, e);
}

static void service_close(struct service *s) {
    for (int i = 0; i < s->supervise.n; i++)
        child_done(s->supervise.children[i]);
    free(s->children);
    supervise_close(&s->supervise);
    log_file_close(&s->log);
    directory_leave(&s->dir);
}

static status_t serve(const struct up_args *args, struct err *e) {
    struct service s = { .args = args, .log = { .fd = -1 }, .dir = { .lock_fd = -1 } };
    s.supervise = (struct supervise){ .self = "/proc/self/exe",
                                      .all_ready = on_all_ready,
                                      .task_done = on_task_done,
                                      .say = service_say,
                                      .ctx = &s,
                                      .signal_fd = -1,
                                      .parent_pipe = args->detached ? STDOUT_FILENO : -1 };
    status_t st = supervise_open(&s.supervise, e);
    if (st == ST_OK)
        st = service_open(&s, e);
    if (st == ST_OK)
        st = supervise_run(&s.supervise, e);
    service_close(&s);
    return st;
}

/* Reads the child's stdout up to its "ready ADDR" line, or to its end. */
static bool pass_ready_line(int fd) {
    char line[256];
    size_t n = 0;
    while (n < sizeof line - 1) {
        ssize_t got = read(fd, line + n, 1);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return false;
        if (line[n++] == '\n')
            break;
    }
    fwrite(line, 1, n, stdout);
    return true;
}

static status_t spawn_detached(const struct up_args *args, int out, pid_t *ret, struct err *e) {
    char executors[24], slots[24];
    const char *argv[16] = { "trainyard", "up", "--detached", "--dir", args->dir, "--executors", executors };
    int n = 7;
    snprintf(executors, sizeof executors, "%lld", (long long)args->executors);
    snprintf(slots, sizeof slots, "%lld", (long long)args->slots);
    if (args->slots != OPTION_ABSENT) {
        argv[n++] = "--slots";
        argv[n++] = slots;
    }
    if (args->listen) {
        argv[n++] = "--listen";
        argv[n++] = args->listen;
    }
    const struct process service = {
        .program = "/proc/self/exe",
        .argv = argv,
        .fds = { { PROCESS_NULL, STDIN_FILENO }, { out, STDOUT_FILENO } },
        .n_fds = 2,
        .group = PROCESS_OWN_SESSION,
    };
    return process_start(&service, ret, e);
}

/* The child says on stderr what went wrong; its exit status becomes ours. If we are killed, it sees our end of the pipe
 * close and stops. */
static status_t detach(struct cli *c, const struct up_args *args, struct err *e) {
    int ends[2];
    pid_t pid = 0;
    if (pipe2(ends, O_CLOEXEC) < 0)
        return err_errno(e, "a pipe");
    status_t st = spawn_detached(args, ends[1], &pid, e);
    close(ends[1]);
    if (st == ST_OK && !pass_ready_line(ends[0])) {
        int wait_status = 0;
        waitpid(pid, &wait_status, 0);
        c->exit_code = WIFEXITED(wait_status) ? (enum exit_code)WEXITSTATUS(wait_status) : EXIT_FAILED;
    }
    close(ends[0]);
    return st;
}

static status_t run_up(struct cli *c, const void *args_, char *const words[], struct err *e) {
    const struct up_args *args = args_;
    (void)words;
    if (args->executors < 0 || args->executors > MOST_EXECUTORS)
        return err_set(e, ST_INVALID_ARGUMENT, "--executors: %lld is not from 0 to %d", (long long)args->executors,
                       MOST_EXECUTORS);
    if (args->slots != OPTION_ABSENT && (args->slots < 1 || args->slots > 1024))
        return err_set(e, ST_INVALID_ARGUMENT, "--slots: %lld is not from 1 to 1024", (long long)args->slots);
    return args->detach ? detach(c, args, e) : serve(args, e);
}

static const struct option_row up_options[] = {
    { "dir", 'd', "DIR", "where everything is kept", OPTION_TEXT, offsetof(struct up_args, dir), ".trainyard" },
    { "executors", 0, "N", "hosts to play, each with a part of the cores and GPUs; 0 = they attach from elsewhere",
      OPTION_INT, offsetof(struct up_args, executors), "1" },
    { "slots", 0, "N", "ranks an executor runs at once; default: cores / executors", OPTION_INT,
      offsetof(struct up_args, slots), NULL },
    { "listen", 0, "ADDR", "also serve on host:port (loopback); else only on a unix socket", OPTION_TEXT,
      offsetof(struct up_args, listen), NULL },
    { "detach", 0, NULL, "return when the service is ready, and leave it running", OPTION_FLAG,
      offsetof(struct up_args, detach), NULL },
    { "detached", 0, NULL, NULL, OPTION_FLAG, offsetof(struct up_args, detached), NULL },
    { 0 },
};

const struct command command_up = {
    .name = "up",
    .arguments = "[--dir DIR] [--executors N] [--slots N] [--listen ADDR] [--detach]",
    .summary = "Runs the whole service on this machine.",
    .details =
        "Starts a private PostgreSQL in DIR (unix socket only), a controller and N executors, restarts what dies,\n"
        "prints 'ready ADDR' on stdout, and stays until SIGINT or SIGTERM; then it stops everything in reverse\n"
        "order and leaves no process, socket or lock behind. DIR/address holds the address while it runs, and\n"
        "DIR/logs what each part says. Two services in two DIRs do not disturb each other.",
    .example = "trainyard up\ntrainyard up --dir /srv/yard --executors 2 --slots 4 --detach",
    .options = up_options,
    .args_bytes = sizeof(struct up_args),
    .local = true,
    .run = run_up,
};

struct down_args {
    const char *dir;
};

static status_t nothing_runs(const char *dir, struct err *e) {
    return err_set(e, ST_NOT_FOUND, "no service runs in '%s'", dir);
}

static status_t stop_and_wait(pid_t pid, const struct directory *d, struct err *e) {
    CLEANUP(closep) int fd = (int)syscall(SYS_pidfd_open, pid, 0);
    pid_t still = 0;
    /* Asked again now that the descriptor pins the process: the pid cannot have become another's. */
    TRY(directory_holder(d, &still, e));
    if (fd < 0 || still != pid)
        return ST_OK;
    if (syscall(SYS_pidfd_send_signal, fd, SIGTERM, NULL, 0) < 0)
        return err_errno(e, "stopping process %d", (int)pid);
    struct pollfd p = { .fd = fd, .events = POLLIN };
    deadline_ms_t end = deadline_in(DOWN_TIMEOUT_MS);
    while (poll(&p, 1, deadline_poll_ms(end)) <= 0)
        if (deadline_poll_ms(end) == 0)
            return err_set(e, ST_DEADLINE_EXCEEDED, "the service in '%s' (process %d) has not stopped after %d s",
                           d->path, (int)pid, DOWN_TIMEOUT_MS / 1000);
    return ST_OK;
}

static status_t run_down(struct cli *c, const void *args_, char *const words[], struct err *e) {
    const struct down_args *args = args_;
    (void)c;
    (void)words;
    struct directory d;
    pid_t holder = 0;
    if (access(args->dir, F_OK) < 0)
        return nothing_runs(args->dir, e);
    TRY(directory_find(args->dir, false, &d, e));
    TRY(directory_holder(&d, &holder, e));
    return holder ? stop_and_wait(holder, &d, e) : nothing_runs(d.path, e);
}

static const struct option_row down_options[] = {
    { "dir", 'd', "DIR", "the service's directory", OPTION_TEXT, offsetof(struct down_args, dir), ".trainyard" },
    { 0 },
};

const struct command command_down = {
    .name = "down",
    .arguments = "[--dir DIR]",
    .summary = "Stops the service that 'up' runs in DIR, and waits until it has stopped.",
    .example = "trainyard down",
    .options = down_options,
    .args_bytes = sizeof(struct down_args),
    .local = true,
    .run = run_down,
};
