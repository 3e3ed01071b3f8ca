/* trainyard up and down: the whole service on one machine.
 *
 * `up` locks the service directory, finds PostgreSQL, and adds children to the supervisor in start order: the server,
 * the migration of the schema, the controller, the executors. If the directory has no cluster yet, initdb is the only
 * child at first, and the others are added when it has ended (on_task_done): the server's folder is opened when the
 * server is added, so the folder must exist. When all children are ready, the address goes to DIR/address and to
 * stdout.
 *
 * `up --detach` starts the same program in a session of its own with a pipe as stdout, prints the "ready" line from the
 * pipe and exits. The background process watches the other end of the pipe, and stops if it closes before the service
 * is ready. `down` finds the pid that holds the lock, pins it with a pidfd, sends SIGTERM and waits.
 *
 * Jobs may read the folders named by --data-root; without the option the user's home folder and the current folder,
 * unless --listen lets others call. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/cores.h"
#include "base/file.h"
#include "base/limits.h"
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

enum {
    MAX_EXECUTORS = 64,
    MAX_ROOTS = 16,
    DOWN_TIMEOUT_MS = 120000,
    REPORT_AFTER_MS = 3000, /* the output of a shorter migration is only in its log */
};

#define SECRET_KEY "secret-key" /* the file in DIR that encrypts secrets */

struct up_args {
    const char *dir, *listen, *sandbox;
    struct text_list data_roots, checkpoint_roots, writable_roots;
    int64_t executors, cores, slots, checkpoint_wait, elastic_settle;
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
    struct folders {
        char *paths[MAX_ROOTS]; /* from realpath(3) */
        size_t n;
    } data_roots, checkpoint_roots, writable_roots; /* jobs may read the first, write checkpoints to the second and to
                                                       DIR, and in a sandbox write anything to the third */
};

static void service_report(void *ctx, const char *line) {
    struct service *s = ctx;
    char stamped[1000];
    struct timespec now;
    struct tm tm;
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &tm);
    size_t n = strftime(stamped, sizeof stamped, "%Y-%m-%dT%H:%M:%SZ ", &tm);
    snprintf(stamped + n, sizeof stamped - n, "%s\n", line);
    (void)log_file_write(&s->log, stamped, strlen(stamped));
    fprintf(stderr, "trainyard: %s\n", line);
}

/* ---- folders that jobs may read ---- */

static status_t folder_add(struct folders *f, const char *option, const char *path, struct err *e) {
    char *real = realpath(path, NULL);
    if (!real)
        return err_errno(e, "--%s: open the folder '%s'", option, path);
    f->paths[f->n++] = real;
    return ST_OK;
}

static void folders_done(struct folders *f) {
    while (f->n)
        free(f->paths[--f->n]);
}

/* Ignores "/", which is the home of users without a home folder. */
static void data_root_add_default(struct service *s, const char *path) {
    if (path && path[0] == '/' && path[1] && access(path, R_OK | X_OK) == 0)
        status_ignore(folder_add(&s->data_roots, "data-root", path, NULL));
}

/* The options' folders, or else the user's own, unless others can call. */
static status_t roots_choose(struct service *s, struct err *e) {
    const struct text_list *asked = &s->args->data_roots, *checkpoints = &s->args->checkpoint_roots;
    for (size_t i = 0; i < checkpoints->n; i++)
        TRY(folder_add(&s->checkpoint_roots, "checkpoint-root", checkpoints->items[i], e));
    for (size_t i = 0; i < s->args->writable_roots.n; i++)
        TRY(folder_add(&s->writable_roots, "writable-root", s->args->writable_roots.items[i], e));
    for (size_t i = 0; i < asked->n; i++)
        TRY(folder_add(&s->data_roots, "data-root", asked->items[i], e));
    if (asked->n > 0)
        return ST_OK;
    if (s->args->listen) {
        service_report(s, "jobs may not read files, because --listen lets others call: name folders with --data-root");
        return ST_OK;
    }
    char here[PATH_MAX];
    data_root_add_default(s, getenv("HOME"));
    data_root_add_default(s, getcwd(here, sizeof here));
    return ST_OK;
}

/* The same arguments for the controller, which plans, and for the executors. */
static void roots_arguments(const struct service *s, struct child *c) {
    static const char *const closed[] = { "postgres", "executors", "logs", SECRET_KEY };
    for (size_t i = 0; i < s->data_roots.n; i++) {
        child_argument(c, "--data-root");
        child_argument(c, "%s", s->data_roots.paths[i]);
    }
    for (size_t i = 0; i < s->checkpoint_roots.n; i++) {
        child_argument(c, "--checkpoint-root");
        child_argument(c, "%s", s->checkpoint_roots.paths[i]);
    }
    for (size_t i = 0; i < sizeof closed / sizeof *closed; i++) {
        child_argument(c, "--data-except");
        child_argument(c, "%s/%s", s->dir.path, closed[i]);
    }
}

/* ---- the programs ---- */

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
    snprintf(line, sizeof line, "creating a PostgreSQL cluster in %s/postgres", s->dir.path);
    service_report(s, line);
    return ST_OK;
}

/* The key is made once. */
static status_t add_secret_key(struct service *s, struct err *e) {
    struct child *c;
    char path[DIRECTORY_PATH_BYTES + 64];
    directory_join(&s->dir, SECRET_KEY, path);
    if (access(path, F_OK) == 0)
        return ST_OK;
    TRY(add_child(s, "secret-key", 1, &c, e));
    TRY(sibling_argument(c, "trainyard-controller", e));
    child_argument(c, "make-secret-key");
    child_argument(c, "%s", path);
    return ST_OK;
}

static status_t add_controller(struct service *s, struct err *e) {
    struct child *c;
    char conninfo[RUNTIME_PATH_BYTES + 64];
    postgres_conninfo(&s->dir, conninfo, sizeof conninfo);
    TRY(add_child(s, "migrate", 1, &c, e));
    TRY(sibling_argument(c, "trainyard-controller", e));
    c->start_limit_ms = 0; /* a migration has no time limit, and reports its progress every few seconds */
    c->report_line = service_report;
    c->report_ctx = s;
    c->report_after_ms = REPORT_AFTER_MS;
    child_argument(c, "migrate");
    child_argument(c, "--database");
    child_argument(c, "%s", conninfo);
    TRY(add_secret_key(s, e));
    TRY(add_child(s, "controller", 1, &c, e));
    c->ready_text = "ready ";
    TRY(sibling_argument(c, "trainyard-controller", e));
    child_argument(c, "--database");
    child_argument(c, "%s", conninfo);
    child_argument(c, "--checkpoints");
    child_argument(c, "%s/checkpoints", s->dir.path);
    child_argument(c, "--secret-key-file");
    child_argument(c, "%s/" SECRET_KEY, s->dir.path);
    roots_arguments(s, c);
    if (s->args->checkpoint_wait != OPTION_ABSENT) {
        child_argument(c, "--checkpoint-wait");
        child_argument(c, "%lld", (long long)s->args->checkpoint_wait);
    }
    if (s->args->elastic_settle != OPTION_ABSENT) {
        child_argument(c, "--elastic-settle");
        child_argument(c, "%lld", (long long)s->args->elastic_settle);
    }
    child_argument(c, "--listen");
    child_argument(c, "%s", s->address);
    if (s->args->listen) {
        child_argument(c, "--listen");
        child_argument(c, "%s", s->args->listen);
    }
    return ST_OK;
}

/* The cores of all executors together. */
static int64_t cores_of(const struct up_args *args) {
    return args->cores == OPTION_ABSENT ? cores_allowed() : args->cores;
}

/* The cores of one executor; the first ones get the remainder. */
static int64_t core_part(const struct up_args *args, int number) {
    const int64_t cores = cores_of(args), n = args->executors, part = cores / n + (number <= cores % n);
    return part > 0 ? part : 1;
}

/* The slots of one executor. */
static int64_t slots_of(const struct up_args *args) {
    return args->slots != OPTION_ABSENT ? args->slots : cores_per_rank((int)cores_of(args), (int)args->executors);
}

static bool sandbox_is_mode(const char *text) {
    return !text || strcmp(text, "off") == 0 || strcmp(text, "available") == 0 || strcmp(text, "require") == 0;
}

/* Without --listen, whoever submits a job owns everything that the job could touch. */
static const char *sandbox_of(const struct up_args *args) {
    return args->sandbox ? args->sandbox : args->listen ? "available" : "off";
}

static status_t add_executor(struct service *s, int number, struct err *e) {
    struct child *c;
    char name[32];
    snprintf(name, sizeof name, "executor-%d", number);
    TRY(add_child(s, name, 2, &c, e));
    c->ready_text = "ready ";
    TRY(sibling_argument(c, "trainyard-executor", e));
    if (!s->args->listen) /* otherwise others can call */
        child_argument(c, "--allow-programs");
    child_argument(c, "--sandbox");
    child_argument(c, "%s", sandbox_of(s->args));
    for (size_t i = 0; i < s->writable_roots.n; i++) {
        child_argument(c, "--writable-root");
        child_argument(c, "%s", s->writable_roots.paths[i]);
    }
    child_argument(c, "--controller");
    child_argument(c, "%s", s->address);
    child_argument(c, "--directory");
    child_argument(c, "%s/executors/%d", s->dir.path, number);
    child_argument(c, "--environment-cache"); /* one for all: the same environment is built once */
    child_argument(c, "%s/environments", s->dir.path);
    child_argument(c, "--data-cache");
    child_argument(c, "%s/data", s->dir.path);
    child_argument(c, "--token-cache");
    child_argument(c, "%s/tokens", s->dir.path);
    child_argument(c, "--cores");
    child_argument(c, "%lld", (long long)core_part(s->args, number));
    child_argument(c, "--slots");
    child_argument(c, "%lld", (long long)slots_of(s->args));
    child_argument(c, "--checkpoint-root");
    child_argument(c, "%s/checkpoints", s->dir.path);
    roots_arguments(s, c);
    if (s->args->executors > 1) {
        child_argument(c, "--gpu-part");
        child_argument(c, "%d/%lld", number, (long long)s->args->executors);
    }
    return ST_OK;
}

/* The server's folder is opened here, so the cluster must exist. */
static status_t add_server(struct service *s, struct err *e) {
    struct child *c;
    TRY(add_child(s, "postgres", 0, &c, e));
    TRY(postgres_serve(&s->pg, &s->dir, c, e));
    TRY(add_controller(s, e));
    for (int i = 1; i <= s->args->executors; i++)
        TRY(add_executor(s, i, e));
    return ST_OK;
}

static status_t on_task_done(void *ctx, const struct child *c, struct err *e) {
    struct service *s = ctx;
    if (strcmp(c->name, "initdb") != 0)
        return ST_OK;
    TRY(postgres_adopt_cluster(&s->dir, e));
    return add_server(s, e);
}

/* A service in the background prints nothing from here on. */
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
    fprintf(stderr, "%s\nexport TRAINYARD_CONTROLLER=%s\n",
            strcmp(s->args->dir, ".trainyard") == 0
                ? "Commands in this folder find the service. In other folders, first run:"
                : "Commands find the service after:",
            s->address);
    fprintf(stderr, "'trainyard status' shows the service, 'trainyard dashboard' serves its web page.\n");
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
    TRY(log_file_open(&s->log, path, CHILD_LOG_BYTES, 0644, e));
    TRY(roots_choose(s, e));
    s->children = alloc_zeroed(SUPERVISE_CHILDREN, sizeof *s->children);
    return postgres_cluster_exists(&s->dir) ? add_server(s, e) : add_initdb(s, e);
}

static void service_close(struct service *s) {
    for (int i = 0; i < s->supervise.n; i++)
        child_done(s->supervise.children[i]);
    free(s->children);
    folders_done(&s->data_roots);
    folders_done(&s->checkpoint_roots);
    folders_done(&s->writable_roots);
    supervise_close(&s->supervise);
    log_file_close(&s->log);
    directory_leave(&s->dir);
}

static status_t serve(const struct up_args *args, struct err *e) {
    struct service s = { .args = args, .log = { .fd = -1 }, .dir = { .lock_fd = -1 } };
    s.supervise = (struct supervise){ .self = "/proc/self/exe",
                                      .all_ready = on_all_ready,
                                      .task_done = on_task_done,
                                      .report = service_report,
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

/* Prints the first line of the child's stdout, "ready ADDR". Returns false if the child ends without such a line. */
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
    char executors[24], cores[24], slots[24], wait[24], settle[24];
    const char *argv[26 + 6 * MAX_ROOTS] = { "trainyard", "up",          "--detached", "--dir",
                                             args->dir,   "--executors", executors };
    int n = 7;
    snprintf(executors, sizeof executors, "%lld", (long long)args->executors);
    snprintf(slots, sizeof slots, "%lld", (long long)args->slots);
    snprintf(cores, sizeof cores, "%lld", (long long)args->cores);
    if (args->cores != OPTION_ABSENT) {
        argv[n++] = "--cores";
        argv[n++] = cores;
    }
    if (args->slots != OPTION_ABSENT) {
        argv[n++] = "--slots";
        argv[n++] = slots;
    }
    snprintf(wait, sizeof wait, "%lld", (long long)args->checkpoint_wait);
    if (args->checkpoint_wait != OPTION_ABSENT) {
        argv[n++] = "--checkpoint-wait";
        argv[n++] = wait;
    }
    snprintf(settle, sizeof settle, "%lld", (long long)args->elastic_settle);
    if (args->elastic_settle != OPTION_ABSENT) {
        argv[n++] = "--elastic-settle";
        argv[n++] = settle;
    }
    if (args->listen) {
        argv[n++] = "--listen";
        argv[n++] = args->listen;
    }
    if (args->sandbox) {
        argv[n++] = "--sandbox";
        argv[n++] = args->sandbox;
    }
    for (size_t i = 0; i < args->data_roots.n; i++) {
        argv[n++] = "--data-root";
        argv[n++] = args->data_roots.items[i];
    }
    for (size_t i = 0; i < args->checkpoint_roots.n; i++) {
        argv[n++] = "--checkpoint-root";
        argv[n++] = args->checkpoint_roots.items[i];
    }
    for (size_t i = 0; i < args->writable_roots.n; i++) {
        argv[n++] = "--writable-root";
        argv[n++] = args->writable_roots.items[i];
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

/* If the child fails, it reports the reason on stderr, and its exit status becomes ours. If we are killed, the child
 * sees our end of the pipe close and stops. */
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
    if (args->executors < 0 || args->executors > MAX_EXECUTORS)
        return err_set(e, ST_INVALID_ARGUMENT, "--executors: %lld is not from 0 to %d", (long long)args->executors,
                       MAX_EXECUTORS);
    if (args->cores != OPTION_ABSENT && (args->cores < 1 || args->cores > LIMIT_CORES))
        return err_set(e, ST_INVALID_ARGUMENT, "--cores: %lld is not from 1 to %d", (long long)args->cores,
                       LIMIT_CORES);
    if (args->slots != OPTION_ABSENT && (args->slots < 1 || args->slots > 1024))
        return err_set(e, ST_INVALID_ARGUMENT, "--slots: %lld is not from 1 to 1024", (long long)args->slots);
    if (args->data_roots.n > MAX_ROOTS || args->checkpoint_roots.n > MAX_ROOTS || args->writable_roots.n > MAX_ROOTS)
        return err_set(e, ST_INVALID_ARGUMENT,
                       "--data-root, --checkpoint-root, --writable-root: at most %d of each can be given", MAX_ROOTS);
    if (!sandbox_is_mode(args->sandbox))
        return err_set(e, ST_INVALID_ARGUMENT, "--sandbox: '%.40s' is not off, available or require", args->sandbox);
    if (args->checkpoint_wait != OPTION_ABSENT && (args->checkpoint_wait < 1 || args->checkpoint_wait > 86400))
        return err_set(e, ST_INVALID_ARGUMENT, "--checkpoint-wait: %lld is not from 1 to 86400",
                       (long long)args->checkpoint_wait);
    if (args->elastic_settle != OPTION_ABSENT && (args->elastic_settle < 1 || args->elastic_settle > 86400))
        return err_set(e, ST_INVALID_ARGUMENT, "--elastic-settle: %lld is not from 1 to 86400",
                       (long long)args->elastic_settle);
    return args->detach ? detach(c, args, e) : serve(args, e);
}

static const struct option_row up_options[] = {
    { "dir", 'd', "DIR", "the folder of all data", OPTION_TEXT, offsetof(struct up_args, dir), ".trainyard" },
    { "executors", 0, "N", "number of executors, which share the cores and GPUs; 0 = hosts attach from elsewhere",
      OPTION_INT, offsetof(struct up_args, executors), "1" },
    { "cores", 0, "N", "cores that all executors together use; default: all usable cores", OPTION_INT,
      offsetof(struct up_args, cores), NULL },
    { "slots", 0, "N", "ranks that an executor runs at the same time; default: cores / executors", OPTION_INT,
      offsetof(struct up_args, slots), NULL },
    { "checkpoint-wait", 0, "S", "seconds that a job waits for an unreadable checkpoint; default: 600", OPTION_INT,
      offsetof(struct up_args, checkpoint_wait), NULL },
    { "elastic-settle", 0, "S", "seconds that slots must be free before an elastic job grows; default: 30", OPTION_INT,
      offsetof(struct up_args, elastic_settle), NULL },
    { "listen", 0, "ADDR", "also listen on host:port (loopback), for calls with a token; default: only a unix socket",
      OPTION_TEXT, offsetof(struct up_args, listen), NULL },
    { "data-root", 0, "DIR", "jobs may read data below DIR; may be repeated", OPTION_LIST,
      offsetof(struct up_args, data_roots), NULL },
    { "checkpoint-root", 0, "DIR", "a spec's checkpoint.directory may be below DIR; may be repeated", OPTION_LIST,
      offsetof(struct up_args, checkpoint_roots), NULL },
    { "sandbox", 0, "MODE", "off, available or require, as trainyard-executor's; default: off, with --listen available",
      OPTION_TEXT, offsetof(struct up_args, sandbox), NULL },
    { "writable-root", 0, "DIR", "in a sandbox, programs may also write below DIR; may be repeated", OPTION_LIST,
      offsetof(struct up_args, writable_roots), NULL },
    { "detach", 0, NULL, "return when the service is ready, and leave it running", OPTION_FLAG,
      offsetof(struct up_args, detach), NULL },
    { "detached", 0, NULL, NULL, OPTION_FLAG, offsetof(struct up_args, detached), NULL },
    { 0 },
};

const struct command command_up = {
    .name = "up",
    .arguments = "[--dir DIR] [--executors N] [--cores N] [--slots N] [--checkpoint-wait S] [--elastic-settle S] "
                 "[--listen ADDR] [--data-root DIR]... [--checkpoint-root DIR]... [--sandbox MODE] [--writable-root "
                 "DIR]... [--detach]",
    .summary = "Runs the whole service on this machine.",
    .details =
        "Starts a private PostgreSQL in DIR (unix socket only), a controller and N executors, restarts processes that\n"
        "die, prints 'ready ADDR' on stdout, and runs until SIGINT or SIGTERM. Then it stops everything in reverse\n"
        "order and leaves no process, socket or lock behind. DIR/address contains the address while the service runs,\n"
        "and DIR/logs the output of each program. Services in different DIRs do not affect each other.\n"
        "\n"
        "A rank computes on the free cores of its executor: the only rank on all of them, one of several on at least\n"
        "cores / slots.\n"
        "\n"
        "Without --data-root, jobs may read files in your home folder and in the current folder; with --listen, which\n"
        "lets others call, no files. Jobs may run programs, but not with --listen.",
    .example = "trainyard up\ntrainyard up --dir /srv/trainyard --executors 2 --slots 4 --detach",
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
    /* Read again: the descriptor now pins the process, so the pid cannot be reused. */
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
