/* trainyard-executor: one host's agent. */
#include "base/clock.h"
#include "base/limits.h"
#include "base/log.h"
#include "executor/agent/agent.h"
#include "executor/agent/attach.h"
#include "executor/agent/attempts.h"
#include "executor/agent/devices.h"
#include "executor/agent/libraries.h"
#include "executor/agent/report.h"
#include "executor/agent/sample.h"

#include <errno.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

enum {
    DATA_ROOTS_MOST = 64,
    SPOOL_DEFAULT_MIB = 1024, /* half an hour of 1,000 steps a second */
    LEAVE_LOOK_MS = 20,
    LEAVE_MOST_MS = 5000, /* workers have two seconds, the last records the rest; then the spool keeps them */
};

static const char usage[] =
    "usage: trainyard-executor --controller ADDR --directory DIR [option]...\n"
    "\n"
    "Runs the ranks of training jobs on this host, as the controller at ADDR (host:port or unix:/path) says.\n"
    "\n"
    "  --controller ADDR     the controller\n"
    "  --directory DIR       this executor's identity and spool; one executor at a time\n"
    "  --slots N             ranks at a time on CPUs (default: one for each core); each GPU of the host takes one "
    "more,\n"
    "                        of jobs that ask for it\n"
    "  --gpu-part K/N        only the K-th of N equal parts of the host's GPUs (default: all that no other executor "
    "has)\n"
    "  --address HOST        where other hosts reach this host's ranks (default: 127.0.0.1)\n"
    "  --data-root DIR       data may be read below DIR; repeat for more (default: whatever this user may read)\n"
    "  --spool-mib N         most MiB of records kept while the controller is away (default: 1024)\n"
    "  --hang-timeout S      a rank without a sign of life for S seconds is killed (default: 30)\n"
    "  --library-path DIR[:DIR]...  where workers on GPUs look first for NVIDIA's libraries\n"
    "                        (default: $TRAINYARD_LIBRARY_PATH, else where the system's loader looks)\n"
    "  --worker PATH         the worker program (default: trainyard-worker beside this program)\n"
    "  --tls-ca FILE, --tls-cert FILE, --tls-key FILE   TLS to the controller; TRAINYARD_TOKEN is its token\n"
    "  --parent-pid PID      leave when this parent process dies\n"
    "  --log-format F, --log-level L    text|json, debug|info|warn|error\n"
    "  --version, --help\n"
    "\n"
    "Prints `ready ID` once it is attached for the first time. SIGTERM and SIGINT stop its workers and end it.\n"
    "\n"
    "example: trainyard-executor --controller controller:7700 --directory /var/lib/trainyard/executor --slots 8\n";

struct options {
    struct agent_options agent;
    const char *data_roots[DATA_ROOTS_MOST];
    long parent_pid;
    enum log_format format;
    enum log_level level;
    char worker[PATH_MAX];
};

/* ---- the command line ---- */

static status_t number_parse(const char *name, const char *text, long least, long most, long *ret, struct err *e) {
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < least || value > most)
        return err_set(e, ST_INVALID_ARGUMENT, "--%s: '%s' is not a number from %ld to %ld", name, text, least, most);
    *ret = value;
    return ST_OK;
}

enum {
    OPT_CONTROLLER = 256,
    OPT_DIRECTORY,
    OPT_SLOTS,
    OPT_GPU_PART,
    OPT_ADDRESS,
    OPT_DATA_ROOT,
    OPT_SPOOL,
    OPT_HANG,
    OPT_LIBRARIES,
    OPT_WORKER,
    OPT_CA,
    OPT_CERT,
    OPT_KEY,
    OPT_PARENT,
    OPT_FORMAT,
    OPT_LEVEL,
    OPT_VERSION,
    OPT_HELP,
};
static const struct option long_options[] = {
    { "controller", required_argument, NULL, OPT_CONTROLLER },
    { "directory", required_argument, NULL, OPT_DIRECTORY },
    { "slots", required_argument, NULL, OPT_SLOTS },
    { "gpu-part", required_argument, NULL, OPT_GPU_PART },
    { "address", required_argument, NULL, OPT_ADDRESS },
    { "data-root", required_argument, NULL, OPT_DATA_ROOT },
    { "spool-mib", required_argument, NULL, OPT_SPOOL },
    { "hang-timeout", required_argument, NULL, OPT_HANG },
    { "library-path", required_argument, NULL, OPT_LIBRARIES },
    { "worker", required_argument, NULL, OPT_WORKER },
    { "tls-ca", required_argument, NULL, OPT_CA },
    { "tls-cert", required_argument, NULL, OPT_CERT },
    { "tls-key", required_argument, NULL, OPT_KEY },
    { "parent-pid", required_argument, NULL, OPT_PARENT },
    { "log-format", required_argument, NULL, OPT_FORMAT },
    { "log-level", required_argument, NULL, OPT_LEVEL },
    { "version", no_argument, NULL, OPT_VERSION },
    { "help", no_argument, NULL, OPT_HELP },
    { NULL, 0, NULL, 0 },
};

static status_t choice_parse(const char *name, int value, int *ret, struct err *e) {
    if (value < 0)
        return err_set(e, ST_INVALID_ARGUMENT, "--%s: '%s' is none of its choices", name, optarg);
    *ret = value;
    return ST_OK;
}

static status_t part_parse(const char *text, struct nvml_part *ret, struct err *e) {
    char number[8];
    const size_t n = strcspn(text, "/");
    long k = 0, of = 0;
    struct err why;
    snprintf(number, sizeof number, "%.*s", n < sizeof number ? (int)n : (int)sizeof number - 1, text);
    if (text[n] != '/' || number_parse("", text + n + 1, 1, NVML_DEVICES_MOST, &of, &why) != ST_OK ||
        number_parse("", number, 1, of, &k, &why) != ST_OK)
        return err_set(e, ST_INVALID_ARGUMENT, "--gpu-part: '%s' is not K/N, with K from 1 to N and N at most %d", text,
                       NVML_DEVICES_MOST);
    *ret = (struct nvml_part){ (int)k, (int)of };
    return ST_OK;
}

static status_t option_take(struct options *o, int which, struct err *e) {
    long number = 0;
    int choice = 0;
    switch (which) {
    case OPT_CONTROLLER: o->agent.controller = optarg; break;
    case OPT_DIRECTORY: o->agent.directory = optarg; break;
    case OPT_ADDRESS: o->agent.address = optarg; break;
    case OPT_WORKER: o->agent.worker = optarg; break;
    case OPT_LIBRARIES: o->agent.library_path = optarg; break;
    case OPT_CA: o->agent.tls.ca = optarg; break;
    case OPT_CERT: o->agent.tls.cert = optarg; break;
    case OPT_KEY: o->agent.tls.key = optarg; break;
    case OPT_SLOTS:
        TRY(number_parse("slots", optarg, 1, LIMIT_WORLD_SIZE, &number, e));
        o->agent.slots = (int)number;
        break;
    case OPT_GPU_PART: return part_parse(optarg, &o->agent.gpu_part, e);
    case OPT_SPOOL:
        TRY(number_parse("spool-mib", optarg, 1, 1 << 20, &number, e));
        o->agent.spool_bytes = (int64_t)number << 20;
        break;
    case OPT_HANG:
        TRY(number_parse("hang-timeout", optarg, 1, 3600, &number, e));
        o->agent.hang_ms = (int)number * 1000;
        break;
    case OPT_PARENT: return number_parse("parent-pid", optarg, 1, INT_MAX, &o->parent_pid, e);
    case OPT_FORMAT:
        TRY(choice_parse("log-format", log_format_parse(optarg), &choice, e));
        o->format = (enum log_format)choice;
        break;
    case OPT_LEVEL:
        TRY(choice_parse("log-level", log_level_parse(optarg), &choice, e));
        o->level = (enum log_level)choice;
        break;
    case OPT_DATA_ROOT:
        if (o->agent.n_data_roots == DATA_ROOTS_MOST)
            return err_set(e, ST_INVALID_ARGUMENT, "--data-root: at most %d can be given", DATA_ROOTS_MOST);
        if (optarg[0] != '/')
            return err_set(e, ST_INVALID_ARGUMENT, "--data-root: '%s' is not an absolute path", optarg);
        o->data_roots[o->agent.n_data_roots++] = optarg;
        break;
    default: return err_set(e, ST_INVALID_ARGUMENT, "see trainyard-executor --help");
    }
    return ST_OK;
}

/* A relative folder would be another one for each worker; the loader takes an empty one for the worker's own. */
static status_t library_path_check(const char *path, struct err *e) {
    for (const char *at = path; at; at = strchr(at, ':')) {
        at += at != path;
        if (*at != '/')
            return err_set(e, ST_INVALID_ARGUMENT,
                           "--library-path (or TRAINYARD_LIBRARY_PATH): '%s' is no list of absolute paths", path);
    }
    return ST_OK;
}

static status_t worker_default(struct options *o, struct err *e) {
    ssize_t n = readlink("/proc/self/exe", o->worker, sizeof o->worker - 32);
    if (n < 0)
        return err_errno(e, "find this program's folder");
    o->worker[n] = '\0';
    strcpy(strrchr(o->worker, '/') + 1, "trainyard-worker");
    o->agent.worker = o->worker;
    return ST_OK;
}

static status_t options_parse(int argc, char **argv, struct options *o, struct err *e) {
    o->agent.address = "127.0.0.1";
    o->agent.nvml = "libnvidia-ml.so.1";
    o->agent.spool_bytes = (int64_t)SPOOL_DEFAULT_MIB << 20;
    o->agent.hang_ms = HANG_TIMEOUT_MS;
    o->agent.data_roots = o->data_roots;
    o->agent.token = getenv("TRAINYARD_TOKEN");
    o->agent.library_path = getenv("TRAINYARD_LIBRARY_PATH");
    o->format = LOG_TEXT;
    o->level = LOG_INFO;
    for (int which; (which = getopt_long(argc, argv, "", long_options, NULL)) != -1;) {
        if (which == OPT_HELP) {
            fputs(usage, stdout);
            exit(0);
        }
        if (which == OPT_VERSION) {
            puts("trainyard-executor " TRAINYARD_VERSION);
            exit(0);
        }
        TRY(option_take(o, which, e));
    }
    if (optind < argc)
        return err_set(e, ST_INVALID_ARGUMENT, "'%s' is no option; see trainyard-executor --help", argv[optind]);
    if (!o->agent.controller || !o->agent.directory)
        return err_set(e, ST_INVALID_ARGUMENT,
                       "--controller and --directory are needed; see trainyard-executor --help");
    if (o->agent.library_path && !*o->agent.library_path)
        o->agent.library_path = NULL;
    TRY(library_path_check(o->agent.library_path, e));
    if (!o->agent.worker)
        TRY(worker_default(o, e));
    if (access(o->agent.worker, X_OK) < 0)
        return err_errno(e, "worker program '%s'", o->agent.worker);
    return ST_OK;
}

/* ---- leaving ---- */

struct program {
    struct agent agent;
    struct reactor_watch signals;
    struct reactor_timer leave;
    int64_t leave_by_ms;
    bool left;
};

static void leave_fire(void *ctx) {
    struct program *p = ctx;
    bool late = clock_mono_ms() >= p->leave_by_ms;
    bool told = attempts_running(p->agent.attempts) == 0 &&
                (report_drained(p->agent.report) || !attach_attached(p->agent.attach));
    if (!p->left && (told || late)) {
        p->left = true;
        attach_leave(p->agent.attach);
    }
    if (late || (p->left && attach_gone(p->agent.attach)))
        reactor_quit(p->agent.loop);
    else
        reactor_timer_set(p->agent.loop, &p->leave, LEAVE_LOOK_MS);
}

static void signal_ready(void *ctx, uint32_t events) {
    (void)events;
    struct program *p = ctx;
    struct signalfd_siginfo info;
    if (read(p->signals.fd, &info, sizeof info) != sizeof info || p->agent.leaving)
        return;
    log_event(LOG_INFO, "leaving", "signal", LOG_INT(info.ssi_signo), "workers",
              LOG_INT((int64_t)attempts_running(p->agent.attempts)), NULL);
    p->agent.leaving = true;
    p->leave_by_ms = clock_mono_ms() + LEAVE_MOST_MS;
    samples_stop_all(p->agent.samples);
    attempts_leave(p->agent.attempts);
    reactor_timer_set(p->agent.loop, &p->leave, 0);
}

/* ---- from start to end ---- */

/* Whoever started this program may wait for the line. */
static void ready_print(const struct agent *agent) {
    static bool printed;
    if (!printed)
        printf("ready %s\n", directory_id(agent->directory));
    fflush(stdout);
    printed = true;
}

/* Blocked in every thread from here on; workers get an empty mask. */
static status_t signals_open(sigset_t *ret, struct err *e) {
    signal(SIGPIPE, SIG_IGN);
    sigemptyset(ret);
    sigaddset(ret, SIGTERM);
    sigaddset(ret, SIGINT);
    sigaddset(ret, SIGHUP);
    errno = pthread_sigmask(SIG_BLOCK, ret, NULL);
    return errno ? err_errno(e, "block signals") : ST_OK;
}

static status_t parent_watch(long parent, struct err *e) {
    if (parent == 0)
        return ST_OK;
    if (prctl(PR_SET_PDEATHSIG, SIGTERM) < 0)
        return err_errno(e, "ask for a signal at the parent's death");
    return getppid() == parent ? ST_OK : err_set(e, ST_UNAVAILABLE, "the parent process %ld is gone already", parent);
}

/* GPUs that workers cannot use are not offered: why stands where else the driver's absence does. */
static void libraries_need(struct agent *agent) {
    struct inventory *inv = &agent->inventory;
    struct libraries found;
    struct err why;
    if (inv->n_devices == 0)
        return;
    if (libraries_check(agent->options->worker, agent->options->library_path, &found, &why) == ST_OK) {
        inv->devices_lone = found.lone;
        snprintf(inv->device_reason, sizeof inv->device_reason, "%s", found.without);
        return;
    }
    snprintf(inv->device_reason, sizeof inv->device_reason, "%d GPU%s, which workers cannot use: %.400s",
             inv->n_devices, inv->n_devices == 1 ? "" : "s", why.msg);
    inv->n_devices = 0;
    agent->nvml = nvml_close(agent->nvml);
}

static status_t agent_open(struct program *p, const struct options *o, const sigset_t *signals, struct err *e) {
    struct agent *agent = &p->agent;
    agent->options = &o->agent;
    agent->attached = ready_print;
    inventory_take(&agent->inventory, o->agent.slots, o->agent.nvml, o->agent.gpu_part, &agent->nvml);
    libraries_need(agent);
    TRY(directory_open(o->agent.directory, &agent->directory, e));
    TRY(reactor_open(&agent->loop, e));
    p->signals = (struct reactor_watch){ .fd = signalfd(-1, signals, SFD_CLOEXEC | SFD_NONBLOCK),
                                         .ready = signal_ready,
                                         .ctx = p };
    p->leave = (struct reactor_timer){ .fire = leave_fire, .ctx = p };
    if (p->signals.fd < 0)
        return err_errno(e, "open the signals");
    TRY(reactor_watch_add(agent->loop, &p->signals, EPOLLIN, e));
    char spool[PATH_MAX];
    if (snprintf(spool, sizeof spool, "%s/spool", directory_path(agent->directory)) >= (int)sizeof spool)
        return err_set(e, ST_INVALID_ARGUMENT, "--directory: the path is too long");
    TRY(spool_open(spool, o->agent.spool_bytes, &agent->spool, e));
    for (size_t i = 0; i < spool_count(agent->spool); i++)
        if (spool_log_damage(spool_at(agent->spool, i)))
            log_event(LOG_ERROR, "spool_damaged", "message", LOG_STR(spool_log_damage(spool_at(agent->spool, i))),
                      NULL);
    TRY(devices_open(agent, &agent->devices, e));
    TRY(attempts_open(agent, &agent->attempts, e));
    TRY(samples_open(agent, &agent->samples, e));
    TRY(attach_open(agent, &agent->attach, e));
    return report_open(agent, &agent->report, e);
}

static void agent_close(struct program *p) {
    struct agent *agent = &p->agent;
    agent->samples = samples_close(agent->samples);
    agent->attempts = attempts_close(agent->attempts);
    agent->devices = devices_close(agent->devices);
    agent->nvml = nvml_close(agent->nvml);
    agent->report = report_close(agent->report);
    agent->attach = attach_close(agent->attach);
    agent->spool = spool_close(agent->spool);
    closep(&p->signals.fd);
    agent->loop = reactor_close(agent->loop);
    agent->directory = directory_close(agent->directory);
}

int main(int argc, char **argv) {
    struct options o = { .format = LOG_TEXT };
    struct program p = { .signals.fd = -1 };
    struct err why = { "" };
    sigset_t signals;
    if (options_parse(argc, argv, &o, &why) != ST_OK) {
        fprintf(stderr, "trainyard-executor: %s\n", why.msg);
        return 2;
    }
    log_setup(o.format, o.level);
    status_t st = signals_open(&signals, &why);
    if (st == ST_OK)
        st = parent_watch(o.parent_pid, &why);
    if (st == ST_OK)
        st = agent_open(&p, &o, &signals, &why);
    if (st == ST_OK) {
        log_event(LOG_INFO, "started", "executor", LOG_STR(directory_id(p.agent.directory)), "incarnation",
                  LOG_INT(directory_incarnation(p.agent.directory)), "slots", LOG_INT(p.agent.inventory.slots),
                  "devices", LOG_INT(p.agent.inventory.n_devices), "device_reason",
                  LOG_STR(p.agent.inventory.device_reason), NULL);
        st = reactor_run(p.agent.loop, &why);
    }
    agent_close(&p);
    if (st != ST_OK) {
        fprintf(stderr, "trainyard-executor: %s\n", why.msg);
        return 1;
    }
    return 0;
}
