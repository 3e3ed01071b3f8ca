#include "executor/agent/options.h"

#include "base/limits.h"
#include "base/process.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SPOOL_DEFAULT_MIB = 1024 /* half an hour of 1,000 steps a second */ };

static const char HELP[] =
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
    "  --tls-ca FILE, --tls-cert FILE, --tls-key FILE   TLS to the controller\n"
    "  --token-file FILE     holds its token of role EXECUTOR (default: $TRAINYARD_TOKEN, else $TRAINYARD_TOKEN_FILE)\n"
    "  --parent-pid PID      leave when this parent process dies\n"
    "  --log-format F, --log-level L    text|json, debug|info|warn|error\n"
    "  --version, --help\n"
    "\n"
    "Prints `ready ID` once it is attached for the first time. SIGTERM and SIGINT stop its workers and end it.\n"
    "\n"
    "example: trainyard-executor --controller controller:7700 --directory /var/lib/trainyard/executor --slots 8\n";

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
    case OPT_TOKEN:
        o->agent.token_file = optarg;
        o->agent.token = NULL; /* what is asked for goes before what is there */
        break;
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
        if (o->agent.n_data_roots == OPTIONS_ROOTS_MOST)
            return err_set(e, ST_INVALID_ARGUMENT, "--data-root: at most %d can be given", OPTIONS_ROOTS_MOST);
        if (optarg[0] != '/')
            return err_set(e, ST_INVALID_ARGUMENT, "--data-root: '%s' is not an absolute path", optarg);
        o->data_roots[o->agent.n_data_roots++] = optarg;
        break;
    case OPT_HELP: o->what = OPTIONS_HELP; break;
    case OPT_VERSION: o->what = OPTIONS_VERSION; break;
    default: break;
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
    TRY(process_beside("trainyard-worker", o->worker, sizeof o->worker, e));
    o->agent.worker = o->worker;
    return ST_OK;
}

static status_t defaults_check(struct options *o, struct err *e) {
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

status_t options_parse(int argc, char **argv, struct options *o, struct err *e) {
    *o = (struct options){ .what = OPTIONS_RUN, .format = LOG_TEXT, .level = LOG_INFO };
    o->agent.address = "127.0.0.1";
    o->agent.nvml = "libnvidia-ml.so.1";
    o->agent.spool_bytes = (int64_t)SPOOL_DEFAULT_MIB << 20;
    o->agent.hang_ms = HANG_TIMEOUT_MS;
    o->agent.data_roots = o->data_roots;
    o->agent.token = getenv("TRAINYARD_TOKEN");
    o->agent.token_file = getenv("TRAINYARD_TOKEN_FILE");
    o->agent.library_path = getenv("TRAINYARD_LIBRARY_PATH");
    opterr = 0;
    for (int which; (which = getopt_long(argc, argv, ":", OPTIONS, NULL)) != -1;) {
        if (which == ':')
            return err_set(e, ST_INVALID_ARGUMENT, "%s needs a value; see trainyard-executor --help", argv[optind - 1]);
        if (which == '?')
            return err_set(e, ST_INVALID_ARGUMENT, "'%s' is no option; see trainyard-executor --help",
                           argv[optind - 1]);
        TRY(option_take(o, which, e));
    }
    if (o->what != OPTIONS_RUN)
        return ST_OK;
    if (optind < argc)
        return err_set(e, ST_INVALID_ARGUMENT, "'%s' is no option; see trainyard-executor --help", argv[optind]);
    return defaults_check(o, e);
}

const char *options_help(void) { return HELP; }
