/* The command line of trainyard-executor.
 *
 * options_parse sets the defaults, some of them from the environment; takes the options one by one and checks each;
 * then checks the conditions that depend on several options or on the host: required options, the library path, the
 * worker's user and program. Strings are not copied. The first mistake ends the parse with a sentence that names the
 * option. */
#include "executor/agent/options.h"

#include "base/limits.h"
#include "base/process.h"
#include "executor/agent/job_user.h"

#include <errno.h>
#include <getopt.h>
#include <linux/capability.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    SPOOL_DEFAULT_MIB = 1024, /* half an hour of 1,000 steps a second */
    CODE_CACHE_DEFAULT_MIB = 2048,
    PROCESSES_DEFAULT = 4096,
    ENVIRONMENT_CACHE_DEFAULT_MIB = 20480,
    ENVIRONMENT_DEFAULT_S = 1800,
    DATA_CACHE_DEFAULT_MIB = 102400,
    TOKEN_CACHE_DEFAULT_MIB = 10240,
};

static const char HELP[] =
    "usage: trainyard-executor --controller ADDR --directory DIR --checkpoint-root DIR [option]...\n"
    "\n"
    "Runs ranks of training jobs on this host for the controller at ADDR (host:port or unix:/path).\n"
    "\n"
    "  --controller ADDR     the controller; several of a cluster separated by commas\n"
    "  --directory DIR       this executor's identity and spool; one executor at a time\n"
    "  --checkpoint-root DIR\n"
    "                        jobs read and write their checkpoints below DIR only, where all hosts see them; repeat\n"
    "                        for more\n"
    "  --cores N             cores that the ranks share (default: those that this program may use)\n"
    "  --slots N             CPU ranks at a time (default: one for each core). Each GPU takes one more rank, of\n"
    "                        a job that asks for GPUs\n"
    "  --gpu-part K/N        only the K-th of N equal parts of the host's GPUs (default: all that no other executor "
    "has)\n"
    "  --address HOST        the address at which other hosts reach this host's ranks (default: 127.0.0.1)\n"
    "  --data-root DIR       data may be read below DIR; repeat for more (default: jobs read no file)\n"
    "  --data-except PATH    data may not be read from the file PATH or below the folder PATH; repeat for more\n"
    "  --spool-mib N         maximum size of the spool, which keeps records until they are stored (default: 1024)\n"
    "  --memory-mib N        memory of all ranks together (default: the host's, less a sixteenth, at least 512 MiB and "
    "at\n"
    "                        most 8 GiB)\n"
    "  --processes-max N     processes and threads of one rank (default: 4096)\n"
    "  --code-cache-mib N    maximum size of the archives of program code that are kept (default: 2048)\n"
    "  --environment-cache DIR  where programs' Python environments and images are kept; executors of a host may\n"
    "                        share it (default: below --directory; required for such programs with --worker-user)\n"
    "  --environment-cache-mib N  maximum size of what is kept there (default: 20480)\n"
    "  --data-cache DIR      where copies of data that are no files of this host (https, s3, hf) are kept; all users\n"
    "                        of the host can read them; executors of a host may share it (default: below\n"
    "                        --directory; required for jobs with such data with --worker-user or --job-users)\n"
    "  --data-cache-mib N    maximum size of what is kept there; 0: no jobs with such data (default: 102400)\n"
    "  --token-cache DIR     where the tokens of encoded texts are kept for all jobs; executors of a host may share "
    "it\n"
    "                        if they have the same --worker-user or --job-users; another user's tokens are removed\n"
    "                        (default: below --directory; with --worker-user or --job-users: none)\n"
    "  --token-cache-mib N   maximum size of what is kept there; 0: each rank encodes its texts (default: 10240)\n"
    "  --cache-listen ADDR:PORT  other hosts of the cluster read the copies of data here, before a store; ADDR is\n"
    "                        numeric; 0.0.0.0 and [::] stand for --address; needs --tls-ca, --tls-cert and --tls-key\n"
    "                        unless it is a loopback address (default: other hosts do not)\n"
    "  --environment-timeout S  a build of a Python environment that takes longer fails (default: 1800)\n"
    "  --environment-user USER  builds of Python environments run as this user (default: --worker-user); also needs\n"
    "                        CAP_CHOWN, as --worker-user does for such builds\n"
    "  --hang-timeout S      a rank without a sign of life for S seconds is killed (default: 30)\n"
    "  --library-path DIR[:DIR]...  folders in which workers on GPUs search first for NVIDIA's libraries\n"
    "                        (default: $TRAINYARD_LIBRARY_PATH, else only the loader's own path)\n"
    "  --worker PATH         the worker of jobs with a model (default: trainyard-worker beside this program)\n"
    "  --allow-programs      run jobs with a program: whoever may submit jobs runs commands on this host (see\n"
    "                        --sandbox)\n"
    "  --worker-user USER    workers run as this user, who can read neither the token nor this program's directory\n"
    "                        (default: as this program's); needs root, or CAP_SETUID, CAP_SETGID and CAP_KILL\n"
    "  --sandbox off|available|require   what jobs may do to this host: everything that their user may (off); only "
    "what\n"
    "                        they are meant to, as far as this host can enforce it (available, the default); the "
    "same,\n"
    "                        and this program does not start if something cannot be enforced (require)\n"
    "  --writable-root DIR   in a sandbox, programs may also write below DIR; repeat for more\n"
    "  --job-users FIRST-LAST   each job runs as a user of its own, a number of this range, the same on all hosts, "
    "with\n"
    "                        this program's group; needs the same as --worker-user, which it replaces\n"
    "  --tls-ca FILE, --tls-cert FILE, --tls-key FILE   TLS to the controller\n"
    "  --token-file FILE     holds its token of role EXECUTOR (default: $TRAINYARD_TOKEN, else $TRAINYARD_TOKEN_FILE)\n"
    "  --parent-pid PID      stop when this parent process ends\n"
    "  --log-format F, --log-level L    text|json, debug|info|warn|error\n"
    "  --version, --help\n"
    "\n"
    "Prints `ready ID` when it is attached for the first time. SIGTERM and SIGINT stop its workers, then the program.\n"
    "\n"
    "example: trainyard-executor --controller controller:7700 --directory /var/lib/trainyard/executor --slots 8 \\\n"
    "             --checkpoint-root /shared/trainyard/checkpoints\n";

static status_t number_parse(const char *name, const char *text, long min, long max, long *ret, struct err *e) {
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (errno || end == text || *end || value < min || value > max)
        return err_set(e, ST_INVALID_ARGUMENT, "--%s: '%s' is not a number from %ld to %ld", name, text, min, max);
    *ret = value;
    return ST_OK;
}

enum {
    OPT_CONTROLLER = 256,
    OPT_DIRECTORY,
    OPT_CORES,
    OPT_SLOTS,
    OPT_GPU_PART,
    OPT_ADDRESS,
    OPT_CHECKPOINT_ROOT,
    OPT_DATA_ROOT,
    OPT_DATA_EXCEPT,
    OPT_SPOOL,
    OPT_CODE_CACHE,
    OPT_MEMORY,
    OPT_PROCESSES,
    OPT_ENVIRONMENTS,
    OPT_ENVIRONMENTS_MIB,
    OPT_DATA_CACHE,
    OPT_DATA_CACHE_MIB,
    OPT_TOKEN_CACHE,
    OPT_TOKEN_CACHE_MIB,
    OPT_CACHE_LISTEN,
    OPT_ENVIRONMENT_TIMEOUT,
    OPT_ENVIRONMENT_USER,
    OPT_HANG,
    OPT_LIBRARIES,
    OPT_WORKER,
    OPT_PROGRAMS,
    OPT_WORKER_USER,
    OPT_SANDBOX,
    OPT_WRITABLE_ROOT,
    OPT_JOB_USERS,
    OPT_CA,
    OPT_CERT,
    OPT_KEY,
    OPT_TOKEN,
    OPT_PARENT,
    OPT_FORMAT,
    OPT_LEVEL,
    OPT_VERSION,
    OPT_HELP,
};
static const struct option OPTIONS[] = {
    { "controller", required_argument, NULL, OPT_CONTROLLER },
    { "directory", required_argument, NULL, OPT_DIRECTORY },
    { "cores", required_argument, NULL, OPT_CORES },
    { "slots", required_argument, NULL, OPT_SLOTS },
    { "gpu-part", required_argument, NULL, OPT_GPU_PART },
    { "address", required_argument, NULL, OPT_ADDRESS },
    { "checkpoint-root", required_argument, NULL, OPT_CHECKPOINT_ROOT },
    { "data-root", required_argument, NULL, OPT_DATA_ROOT },
    { "data-except", required_argument, NULL, OPT_DATA_EXCEPT },
    { "spool-mib", required_argument, NULL, OPT_SPOOL },
    { "code-cache-mib", required_argument, NULL, OPT_CODE_CACHE },
    { "memory-mib", required_argument, NULL, OPT_MEMORY },
    { "processes-max", required_argument, NULL, OPT_PROCESSES },
    { "environment-cache", required_argument, NULL, OPT_ENVIRONMENTS },
    { "environment-cache-mib", required_argument, NULL, OPT_ENVIRONMENTS_MIB },
    { "data-cache", required_argument, NULL, OPT_DATA_CACHE },
    { "data-cache-mib", required_argument, NULL, OPT_DATA_CACHE_MIB },
    { "token-cache", required_argument, NULL, OPT_TOKEN_CACHE },
    { "token-cache-mib", required_argument, NULL, OPT_TOKEN_CACHE_MIB },
    { "cache-listen", required_argument, NULL, OPT_CACHE_LISTEN },
    { "environment-timeout", required_argument, NULL, OPT_ENVIRONMENT_TIMEOUT },
    { "environment-user", required_argument, NULL, OPT_ENVIRONMENT_USER },
    { "hang-timeout", required_argument, NULL, OPT_HANG },
    { "library-path", required_argument, NULL, OPT_LIBRARIES },
    { "worker", required_argument, NULL, OPT_WORKER },
    { "allow-programs", no_argument, NULL, OPT_PROGRAMS },
    { "worker-user", required_argument, NULL, OPT_WORKER_USER },
    { "sandbox", required_argument, NULL, OPT_SANDBOX },
    { "writable-root", required_argument, NULL, OPT_WRITABLE_ROOT },
    { "job-users", required_argument, NULL, OPT_JOB_USERS },
    { "tls-ca", required_argument, NULL, OPT_CA },
    { "tls-cert", required_argument, NULL, OPT_CERT },
    { "tls-key", required_argument, NULL, OPT_KEY },
    { "token-file", required_argument, NULL, OPT_TOKEN },
    { "parent-pid", required_argument, NULL, OPT_PARENT },
    { "log-format", required_argument, NULL, OPT_FORMAT },
    { "log-level", required_argument, NULL, OPT_LEVEL },
    { "version", no_argument, NULL, OPT_VERSION },
    { "help", no_argument, NULL, OPT_HELP },
    { NULL, 0, NULL, 0 },
};

static status_t choice_parse(const char *name, int value, int *ret, struct err *e) {
    if (value < 0)
        return err_set(e, ST_INVALID_ARGUMENT, "--%s: '%s' is not one of its values", name, optarg);
    *ret = value;
    return ST_OK;
}

static status_t sandbox_parse(enum sandbox_mode *ret, struct err *e) {
    int mode = 0;
    TRY(choice_parse("sandbox", sandbox_mode_parse(optarg), &mode, e));
    *ret = (enum sandbox_mode)mode;
    return ST_OK;
}

static status_t part_parse(const char *text, struct nvml_part *ret, struct err *e) {
    char number[8];
    const size_t n = strcspn(text, "/");
    long k = 0, of = 0;
    struct err why;
    snprintf(number, sizeof number, "%.*s", n < sizeof number ? (int)n : (int)sizeof number - 1, text);
    if (text[n] != '/' || number_parse("", text + n + 1, 1, NVML_DEVICES_MAX, &of, &why) != ST_OK ||
        number_parse("", number, 1, of, &k, &why) != ST_OK)
        return err_set(e, ST_INVALID_ARGUMENT, "--gpu-part: '%s' is not K/N, with K from 1 to N and N at most %d", text,
                       NVML_DEVICES_MAX);
    *ret = (struct nvml_part){ (int)k, (int)of };
    return ST_OK;
}

static status_t path_add(const char *name, const char *list[AGENT_PATHS_MAX], size_t *n, struct err *e) {
    if (*n == AGENT_PATHS_MAX)
        return err_set(e, ST_INVALID_ARGUMENT, "--%s: at most %d can be given", name, AGENT_PATHS_MAX);
    if (optarg[0] != '/')
        return err_set(e, ST_INVALID_ARGUMENT, "--%s: '%s' is not an absolute path", name, optarg);
    list[(*n)++] = optarg;
    return ST_OK;
}

/* Options with a number that is not a process's. */
static status_t number_take(struct options *o, int which, struct err *e) {
    long number = 0;
    switch (which) {
    case OPT_CORES:
        TRY(number_parse("cores", optarg, 1, LIMIT_CORES, &number, e));
        o->agent.cores = (int)number;
        break;
    case OPT_SLOTS:
        TRY(number_parse("slots", optarg, 1, LIMIT_WORLD_SIZE, &number, e));
        o->agent.slots = (int)number;
        break;
    case OPT_SPOOL:
        TRY(number_parse("spool-mib", optarg, 1, 1 << 20, &number, e));
        o->agent.spool_bytes = (int64_t)number << 20;
        break;
    case OPT_CODE_CACHE:
        TRY(number_parse("code-cache-mib", optarg, 1, 1 << 20, &number, e));
        o->agent.code_cache_bytes = (int64_t)number << 20;
        break;
    case OPT_MEMORY:
        TRY(number_parse("memory-mib", optarg, 64, 1 << 30, &number, e));
        o->agent.memory_bytes = (int64_t)number << 20;
        break;
    case OPT_PROCESSES:
        TRY(number_parse("processes-max", optarg, 16, 1 << 22, &number, e));
        o->agent.processes_max = number;
        break;
    case OPT_ENVIRONMENTS_MIB:
        TRY(number_parse("environment-cache-mib", optarg, 1, 1 << 24, &number, e));
        o->agent.environment_cache_bytes = (int64_t)number << 20;
        break;
    case OPT_DATA_CACHE_MIB:
        TRY(number_parse("data-cache-mib", optarg, 0, 1 << 30, &number, e));
        o->agent.data_cache_bytes = (int64_t)number << 20;
        break;
    case OPT_TOKEN_CACHE_MIB:
        TRY(number_parse("token-cache-mib", optarg, 0, 1 << 30, &number, e));
        o->agent.token_cache_bytes = (int64_t)number << 20;
        break;
    case OPT_ENVIRONMENT_TIMEOUT:
        TRY(number_parse("environment-timeout", optarg, 1, 86400, &number, e));
        o->agent.environment_limit_s = (int)number;
        break;
    case OPT_HANG:
        TRY(number_parse("hang-timeout", optarg, 1, 3600, &number, e));
        o->agent.hang_ms = (int)number * 1000;
        break;
    default: break;
    }
    return ST_OK;
}

static status_t folder_take(const char *name, const char **ret, struct err *e) {
    if (optarg[0] != '/')
        return err_set(e, ST_INVALID_ARGUMENT, "--%s: '%s' is not an absolute path", name, optarg);
    *ret = optarg;
    return ST_OK;
}

static status_t option_take(struct options *o, int which, struct err *e) {
    int choice = 0;
    switch (which) {
    case OPT_CONTROLLER: o->agent.controller = optarg; break;
    case OPT_DIRECTORY: o->agent.directory = optarg; break;
    case OPT_ADDRESS: o->agent.address = optarg; break;
    case OPT_WORKER: o->agent.worker = optarg; break;
    case OPT_PROGRAMS: o->agent.allow_programs = true; break;
    case OPT_WORKER_USER: o->agent.worker_user = optarg; break;
    case OPT_ENVIRONMENT_USER: o->agent.environment_user = optarg; break;
    case OPT_ENVIRONMENTS: return folder_take("environment-cache", &o->agent.environment_cache, e);
    case OPT_DATA_CACHE: return folder_take("data-cache", &o->agent.data_cache, e);
    case OPT_TOKEN_CACHE: return folder_take("token-cache", &o->agent.token_cache, e);
    case OPT_CACHE_LISTEN: o->agent.cache_listen = optarg; break;
    case OPT_JOB_USERS: return job_user_parse(optarg, &o->agent.job_user_first, &o->agent.job_user_last, e);
    case OPT_LIBRARIES: o->agent.library_path = optarg; break;
    case OPT_CA: o->agent.tls.ca = optarg; break;
    case OPT_CERT: o->agent.tls.cert = optarg; break;
    case OPT_KEY: o->agent.tls.key = optarg; break;
    case OPT_TOKEN:
        o->agent.token_file = optarg;
        o->agent.token = NULL; /* an option overrides the environment */
        break;
    case OPT_GPU_PART: return part_parse(optarg, &o->agent.gpu_part, e);
    case OPT_PARENT: return number_parse("parent-pid", optarg, 1, INT_MAX, &o->parent_pid, e);
    case OPT_FORMAT:
        TRY(choice_parse("log-format", log_format_parse(optarg), &choice, e));
        o->format = (enum log_format)choice;
        break;
    case OPT_LEVEL:
        TRY(choice_parse("log-level", log_level_parse(optarg), &choice, e));
        o->level = (enum log_level)choice;
        break;
    case OPT_SANDBOX: return sandbox_parse(&o->agent.sandbox, e);
    case OPT_WRITABLE_ROOT: return path_add("writable-root", o->writable_roots, &o->agent.n_writable_roots, e);
    case OPT_DATA_ROOT: return path_add("data-root", o->data_roots, &o->agent.n_data_roots, e);
    case OPT_CHECKPOINT_ROOT: return path_add("checkpoint-root", o->checkpoint_roots, &o->agent.n_checkpoint_roots, e);
    case OPT_DATA_EXCEPT: return path_add("data-except", o->data_except, &o->agent.n_data_except, e);
    case OPT_HELP: o->what = OPTIONS_HELP; break;
    case OPT_VERSION: o->what = OPTIONS_VERSION; break;
    default: return number_take(o, which, e);
    }
    return ST_OK;
}

/* The loader resolves a relative or empty folder against the worker's working directory. */
static status_t library_path_check(const char *path, struct err *e) {
    for (const char *at = path; at; at = strchr(at, ':')) {
        at += at != path;
        if (*at != '/')
            return err_set(e, ST_INVALID_ARGUMENT,
                           "--library-path (or TRAINYARD_LIBRARY_PATH): '%s' is not a list of absolute paths", path);
    }
    return ST_OK;
}

static status_t worker_default(struct options *o, struct err *e) {
    TRY(process_beside("trainyard-worker", o->worker, sizeof o->worker, e));
    o->agent.worker = o->worker;
    return ST_OK;
}

/* Whether this program may start processes as another user, and end them. */
static bool may_change_user(void) {
    struct __user_cap_header_struct header = { .version = _LINUX_CAPABILITY_VERSION_3 };
    struct __user_cap_data_struct have[_LINUX_CAPABILITY_U32S_3] = { 0 };
    const uint32_t needed = 1u << CAP_SETUID | 1u << CAP_SETGID | 1u << CAP_KILL;
    return syscall(SYS_capget, &header, have) == 0 && (have[0].effective & needed) == needed;
}

static status_t user_check(const char *option, const char *name, struct err *e) {
    if (!name)
        return ST_OK;
    const struct passwd *user = getpwnam(name);
    if (!user || user->pw_uid == 0)
        return err_set(e, ST_INVALID_ARGUMENT, "--%s: '%s' is %s", option, name,
                       user ? "root, as which no worker may run" : "not a user of this host");
    return may_change_user() ? ST_OK
                             : err_set(e, ST_PERMISSION_DENIED,
                                       "--%s: this program cannot start processes as '%s': run it as root, or "
                                       "with the capabilities CAP_SETUID, CAP_SETGID and CAP_KILL",
                                       option, name);
}

static status_t job_users_check(const struct agent_options *o, struct err *e) {
    if (!job_user_is_own(o))
        return ST_OK;
    if (o->worker_user)
        return err_set(e, ST_INVALID_ARGUMENT, "--job-users and --worker-user exclude each other");
    return may_change_user() ? ST_OK
                             : err_set(e, ST_PERMISSION_DENIED,
                                       "--job-users: this program cannot start processes as other users: run it as "
                                       "root, or with the capabilities CAP_SETUID, CAP_SETGID and CAP_KILL");
}

static status_t defaults_check(struct options *o, struct err *e) {
    if (!o->agent.controller || !o->agent.directory || !o->agent.n_checkpoint_roots)
        return err_set(e, ST_INVALID_ARGUMENT,
                       "--controller, --directory and --checkpoint-root are required; see trainyard-executor --help");
    if (o->agent.library_path && !*o->agent.library_path)
        o->agent.library_path = NULL;
    TRY(library_path_check(o->agent.library_path, e));
    TRY(user_check("worker-user", o->agent.worker_user, e));
    TRY(user_check("environment-user", o->agent.environment_user, e));
    TRY(job_users_check(&o->agent, e));
    TRY(process_beside("trainyard-program", o->program, sizeof o->program, e));
    o->agent.program = o->program;
    TRY(process_beside("trainyard-code", o->code, sizeof o->code, e));
    o->agent.code = o->code;
    TRY(process_beside("trainyard-environment", o->environment, sizeof o->environment, e));
    o->agent.environment = o->environment;
    TRY(process_beside("trainyard-data", o->data, sizeof o->data, e));
    o->agent.data = o->data;
    if (!o->agent.worker)
        TRY(worker_default(o, e));
    if (access(o->agent.worker, X_OK) < 0)
        return err_errno(e, "worker program '%s'", o->agent.worker);
    return ST_OK;
}

status_t options_parse(int argc, char **argv, struct options *o, struct err *e) {
    *o = (struct options){ .what = OPTIONS_RUN, .format = LOG_TEXT, .level = LOG_INFO };
    o->agent.address = "127.0.0.1";
    o->agent.nvml = "libnvidia-ml.so.1";
    o->agent.spool_bytes = (int64_t)SPOOL_DEFAULT_MIB << 20;
    o->agent.code_cache_bytes = (int64_t)CODE_CACHE_DEFAULT_MIB << 20;
    o->agent.processes_max = PROCESSES_DEFAULT;
    o->agent.environment_cache_bytes = (int64_t)ENVIRONMENT_CACHE_DEFAULT_MIB << 20;
    o->agent.data_cache_bytes = (int64_t)DATA_CACHE_DEFAULT_MIB << 20;
    o->agent.token_cache_bytes = (int64_t)TOKEN_CACHE_DEFAULT_MIB << 20;
    o->agent.environment_limit_s = ENVIRONMENT_DEFAULT_S;
    o->agent.hang_ms = HANG_TIMEOUT_MS;
    o->agent.sandbox = SANDBOX_AVAILABLE;
    o->agent.writable_roots = o->writable_roots;
    o->agent.data_roots = o->data_roots;
    o->agent.data_except = o->data_except;
    o->agent.checkpoint_roots = o->checkpoint_roots;
    o->agent.token = getenv("TRAINYARD_TOKEN");
    o->agent.token_file = getenv("TRAINYARD_TOKEN_FILE");
    o->agent.library_path = getenv("TRAINYARD_LIBRARY_PATH");
    opterr = 0;
    for (int which; (which = getopt_long(argc, argv, ":", OPTIONS, NULL)) != -1;) {
        if (which == ':')
            return err_set(e, ST_INVALID_ARGUMENT, "%s needs a value; see trainyard-executor --help", argv[optind - 1]);
        if (which == '?')
            return err_set(e, ST_INVALID_ARGUMENT, "'%s' is not an option; see trainyard-executor --help",
                           argv[optind - 1]);
        TRY(option_take(o, which, e));
    }
    if (o->what != OPTIONS_RUN)
        return ST_OK;
    if (optind < argc)
        return err_set(e, ST_INVALID_ARGUMENT, "'%s' is not an option; see trainyard-executor --help", argv[optind]);
    return defaults_check(o, e);
}

const char *options_help(void) { return HELP; }
