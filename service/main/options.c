/* Parses the command line with getopt_long, in one pass over the arguments.
 *
  * Each option is stored by `take`, which also checks the range of a number and the form of a path. A word that is not
  * an option can only be a command: `migrate`, or `make-secret-key` with its file. After the pass, `check` compares
  * options with each other and requires those that the command needs; --help and --version need none. Every error is
  * INVALID_ARGUMENT and names the option or the word. Values are pointers into argv and are not copied.
  *
  * The file of --options has one option on each line, in place of which its lines are taken: the name without the
  * dashes, and the value behind spaces or a '='. Values are pointers into its text. */
#include "service/main/options.h"

#include "base/alloc.h"
#include "base/bytes.h"
#include "base/file.h"
#include "service/http/metrics.h"

#include <errno.h>
#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Of the file of --options. */
#define FILE_BYTES (64 << 10)

const char *options_help(void) {
    return "trainyard-controller: stores jobs in PostgreSQL, places them on executors, and answers clients\n"
           "\n"
           "  trainyard-controller --database CONNINFO --listen ADDR... --checkpoints DIR [option]...\n"
           "  trainyard-controller migrate --database CONNINFO [--to VERSION] [--wait SECONDS]\n"
           "  trainyard-controller make-secret-key FILE\n"
           "\n"
           "  --database CONNINFO   PostgreSQL, as libpq reads it: 'host=/run/postgresql dbname=trainyard'\n"
           "  --listen ADDR         unix:/path or host:port; may be given several times\n"
           "  --checkpoints DIR     where jobs that name no directory write; shared by all executors\n"
           "  --checkpoint-root DIR\n"
           "                        jobs may name directories below DIR as well; may be given several times\n"
           "  --keep-ended-days N   delete jobs that ended more than N days ago, as `trainyard delete` does; default: "
           "none\n"
           "  --audit-days N        keep entries of the audit log for N days, 1 to 36500; default: 400\n"
           "  --forget-lost-days N  forget executors that have been lost for more than N days, 0 = never; default: 30\n"
           "  --elastic-settle S    how long slots must be free before an elastic job grows, in seconds; default: 30\n"
           "  --checkpoint-wait S   how long a job waits for a checkpoint whose files cannot be read, before an "
           "older\n"
           "                        one is taken: 1 to 86400 seconds; default: 600\n"
           "  --fixed-queues        refuse jobs of queues that were not created (trainyard queue create)\n"
           "  --code-mib N          the maximum size of all archives of program code in the database, 1 to 16777216; "
           "default:\n"
           "                        16384\n"
           "  --secret-key-file FILE\n"
           "                        the key that encrypts secrets; may be given several times: the first encrypts, "
           "all\n"
           "                        decrypt. make-secret-key creates one. default: none, and jobs can have no secrets\n"
           "  --data-root DIR       data below it may be looked at to plan a job (ValidateJob); may be given several\n"
           "                        times; default: none\n"
           "  --data-except PATH    but not the file PATH, or what is below the folder PATH; may be given several "
           "times\n"
           "  --http ADDR           serve /metrics, /healthz and /livez at host:port; where other machines reach it, "
           "over\n"
           "                        TLS, and /metrics needs a token\n"
           "  --metrics-jobs N      how many jobs that have not ended get series of their own in /metrics, 0 to "
           "10000;\n"
           "                        default: 1000\n"
           "  --web ADDR            serve the web page at host:port to everyone who has a token; where other machines "
           "reach it, over\n"
           "                        TLS\n"
           "  --max-jobs N          how many jobs may exist that have not ended, 1 to 10000000; default: 1000000\n"
           "  --access-log FILE     write a line of JSON about each call to FILE; '-': to the log\n"
           "  --notify FILE         notify webhooks and commands of events of jobs, as the YAML of FILE says\n"
           "  --tls-cert FILE --tls-key FILE [--tls-ca FILE]\n"
           "                        TLS on TCP; with --tls-ca clients must show a certificate (mutual TLS), which is "
           "needed\n"
           "                        where other machines reach ADDR. Over TLS every call needs a token\n"
           "  --ca-key FILE --join ADDR\n"
           "                        hosts may join (trainyard join) at the host:port ADDR: FILE is the key of the "
           "--tls-ca,\n"
           "                        with which their certificates are signed; default: none can join\n"
           "  --socket-role USER=ROLE\n"
           "                        the user of this machine, a name or a number, may call over unix sockets without a "
           "token, as\n"
           "                        VIEWER, USER, ADMIN or EXECUTOR; may be given several times; default: only the "
           "controller's own\n"
           "                        user and root, who may call everything\n"
           "  --require-tokens      has no effect: every call over TCP needs a token\n"
           "  --log-format FORMAT   text (default) or json, on stderr\n"
           "  --log-level LEVEL     debug, info (default), warn or error\n"
           "  --options FILE        more options, one on each line, without the dashes: log-level debug. SIGHUP reads "
           "FILE\n"
           "                        again, of which log-level and max-jobs take effect, and the files of TLS\n"
           "  --to VERSION          migrate: to this schema version, up or down; default: this program's\n"
           "  --wait SECONDS        migrate: wait so long for a PostgreSQL that takes no connections yet, 0 to 86400;\n"
           "                        default: 0\n"
           "  --help, --version\n"
           "\n"
           "Prints 'ready ADDR' on stdout once it leads and serves. A second controller on the same database stands "
           "by.\n"
           "\n"
           "Example:\n"
           "  trainyard-controller migrate --database 'host=/run/postgresql dbname=trainyard'\n"
           "  trainyard-controller --database 'host=/run/postgresql dbname=trainyard' --listen 127.0.0.1:7700 \\\n"
           "      --checkpoints /srv/trainyard/checkpoints\n";
}

enum {
    OPT_DATABASE = 256,
    OPT_LISTEN,
    OPT_CHECKPOINTS,
    OPT_CHECKPOINT_ROOT,
    OPT_KEEP_ENDED,
    OPT_FORGET_LOST,
    OPT_AUDIT_DAYS,
    OPT_CHECKPOINT_WAIT,
    OPT_ELASTIC_SETTLE,
    OPT_FIXED_QUEUES,
    OPT_CODE,
    OPT_SECRET_KEY,
    OPT_DATA_ROOT,
    OPT_DATA_EXCEPT,
    OPT_HTTP,
    OPT_WEB,
    OPT_METRICS_JOBS,
    OPT_MAX_JOBS,
    OPT_FILE,
    OPT_NOTIFY,
    OPT_ACCESS_LOG,
    OPT_CERT,
    OPT_KEY,
    OPT_CA,
    OPT_CA_KEY,
    OPT_JOIN,
    OPT_REQUIRE,
    OPT_SOCKET_ROLE,
    OPT_FORMAT,
    OPT_LEVEL,
    OPT_TO,
    OPT_WAIT,
    OPT_HELP,
    OPT_VERSION
};

static const struct option OPTIONS[] = {
    { "database", required_argument, NULL, OPT_DATABASE },
    { "listen", required_argument, NULL, OPT_LISTEN },
    { "checkpoints", required_argument, NULL, OPT_CHECKPOINTS },
    { "checkpoint-root", required_argument, NULL, OPT_CHECKPOINT_ROOT },
    { "keep-ended-days", required_argument, NULL, OPT_KEEP_ENDED },
    { "forget-lost-days", required_argument, NULL, OPT_FORGET_LOST },
    { "audit-days", required_argument, NULL, OPT_AUDIT_DAYS },
    { "checkpoint-wait", required_argument, NULL, OPT_CHECKPOINT_WAIT },
    { "elastic-settle", required_argument, NULL, OPT_ELASTIC_SETTLE },
    { "fixed-queues", no_argument, NULL, OPT_FIXED_QUEUES },
    { "code-mib", required_argument, NULL, OPT_CODE },
    { "secret-key-file", required_argument, NULL, OPT_SECRET_KEY },
    { "data-root", required_argument, NULL, OPT_DATA_ROOT },
    { "data-except", required_argument, NULL, OPT_DATA_EXCEPT },
    { "http", required_argument, NULL, OPT_HTTP },
    { "web", required_argument, NULL, OPT_WEB },
    { "metrics-jobs", required_argument, NULL, OPT_METRICS_JOBS },
    { "max-jobs", required_argument, NULL, OPT_MAX_JOBS },
    { "options", required_argument, NULL, OPT_FILE },
    { "access-log", required_argument, NULL, OPT_ACCESS_LOG },
    { "notify", required_argument, NULL, OPT_NOTIFY },
    { "tls-cert", required_argument, NULL, OPT_CERT },
    { "tls-key", required_argument, NULL, OPT_KEY },
    { "tls-ca", required_argument, NULL, OPT_CA },
    { "ca-key", required_argument, NULL, OPT_CA_KEY },
    { "join", required_argument, NULL, OPT_JOIN },
    { "require-tokens", no_argument, NULL, OPT_REQUIRE },
    { "socket-role", required_argument, NULL, OPT_SOCKET_ROLE },
    { "log-format", required_argument, NULL, OPT_FORMAT },
    { "log-level", required_argument, NULL, OPT_LEVEL },
    { "to", required_argument, NULL, OPT_TO },
    { "wait", required_argument, NULL, OPT_WAIT },
    { "help", no_argument, NULL, OPT_HELP },
    { "version", no_argument, NULL, OPT_VERSION },
    { NULL, 0, NULL, 0 },
};

static status_t take_log(struct options *o, int which, const char *value, struct err *e) {
    int parsed = which == OPT_FORMAT ? log_format_parse(value) : log_level_parse(value);
    if (parsed < 0)
        return err_set(e, ST_INVALID_ARGUMENT, "--log-%s: '%s' is unknown", which == OPT_FORMAT ? "format" : "level",
                       value);
    if (which == OPT_FORMAT)
        o->log_format = (enum log_format)parsed;
    else
        o->log_level = (enum log_level)parsed;
    return ST_OK;
}

static bool number(const char *value, long min, long max, int *ret) {
    char *end;
    errno = 0;
    long n = strtol(value, &end, 10);
    *ret = (int)n;
    return !errno && !*end && end != value && n >= min && n <= max;
}

static status_t take_version(struct options *o, const char *value, struct err *e) {
    return number(value, 0, 9999, &o->to)
               ? ST_OK
               : err_set(e, ST_INVALID_ARGUMENT, "--to: '%s' is not a schema version", value);
}

static status_t take_lost_days(struct options *o, const char *value, struct err *e) {
    if (number(value, 0, 36500, &o->forget_lost_days))
        return ST_OK;
    return err_set(e, ST_INVALID_ARGUMENT, "--forget-lost-days: '%s' is not from 0 to 36500", value);
}

static status_t take_audit_days(struct options *o, const char *value, struct err *e) {
    if (number(value, 1, 36500, &o->audit_days))
        return ST_OK;
    return err_set(e, ST_INVALID_ARGUMENT, "--audit-days: '%s' is not from 1 to 36500", value);
}

static status_t take_wait(struct options *o, const char *value, struct err *e) {
    return number(value, 0, 86400, &o->wait_s)
               ? ST_OK
               : err_set(e, ST_INVALID_ARGUMENT, "--wait: '%s' is not from 0 to 86400 seconds", value);
}

static status_t take_days(struct options *o, const char *value, struct err *e) {
    if (number(value, 1, 36500, &o->keep_ended_days))
        return ST_OK;
    return err_set(e, ST_INVALID_ARGUMENT, "--keep-ended-days: '%s' is not from 1 to 36500", value);
}

static status_t add_path(const char *name, const char *list[OPTIONS_MAX_ROOTS], int *n, const char *value,
                         struct err *e) {
    if (*n == OPTIONS_MAX_ROOTS)
        return err_set(e, ST_INVALID_ARGUMENT, "--%s: more than %d paths", name, OPTIONS_MAX_ROOTS);
    if (value[0] != '/')
        return err_set(e, ST_INVALID_ARGUMENT, "--%s: '%s' is not an absolute path", name, value);
    list[(*n)++] = value;
    return ST_OK;
}

static status_t take_checkpoint_wait(struct options *o, const char *value, struct err *e) {
    if (number(value, 1, 86400, &o->checkpoint_wait_s))
        return ST_OK;
    return err_set(e, ST_INVALID_ARGUMENT, "--checkpoint-wait: '%s' is not from 1 to 86400", value);
}

static status_t take_elastic_settle(struct options *o, const char *value, struct err *e) {
    if (number(value, 1, 86400, &o->elastic_settle_s))
        return ST_OK;
    return err_set(e, ST_INVALID_ARGUMENT, "--elastic-settle: '%s' is not from 1 to 86400", value);
}

static status_t take_code(struct options *o, const char *value, struct err *e) {
    if (number(value, 1, 1 << 24, &o->code_mib))
        return ST_OK;
    return err_set(e, ST_INVALID_ARGUMENT, "--code-mib: '%s' is not from 1 to 16777216", value);
}

static status_t take_metrics_jobs(struct options *o, const char *value, struct err *e) {
    if (number(value, 0, METRICS_JOBS_MAX, &o->metrics_jobs))
        return ST_OK;
    return err_set(e, ST_INVALID_ARGUMENT, "--metrics-jobs: '%s' is not from 0 to %d", value, METRICS_JOBS_MAX);
}

static status_t take_socket_role(struct options *o, const char *value, struct err *e) {
    status_t st = access_users_add(&o->users, value, e);
    if (st != ST_OK)
        return err_prefix(e, st, "--socket-role: ");
    o->sockets_for_all = true;
    return ST_OK;
}

static status_t take_max_jobs(struct options *o, const char *value, struct err *e) {
    if (number(value, 1, 10000000, &o->max_jobs))
        return ST_OK;
    return err_set(e, ST_INVALID_ARGUMENT, "--max-jobs: '%s' is not from 1 to 10000000", value);
}

static status_t take_file(struct options *o, const char *path, struct err *e);

static status_t take(struct options *o, int which, const char *value, struct err *e) {
    switch (which) {
    case OPT_DATABASE: o->database = value; return ST_OK;
    case OPT_CHECKPOINTS: o->checkpoints = value; return ST_OK;
    case OPT_HTTP: o->http = value; return ST_OK;
    case OPT_WEB: o->web = value; return ST_OK;
    case OPT_METRICS_JOBS: return take_metrics_jobs(o, value, e);
    case OPT_MAX_JOBS: return take_max_jobs(o, value, e);
    case OPT_FILE: return take_file(o, value, e);
    case OPT_ACCESS_LOG: o->access_log = value; return ST_OK;
    case OPT_NOTIFY: o->notify = value; return ST_OK;
    case OPT_CERT: o->tls.cert = value; return ST_OK;
    case OPT_KEY: o->tls.key = value; return ST_OK;
    case OPT_CA: o->tls.ca = value; return ST_OK;
    case OPT_CA_KEY: o->ca_key = value; return ST_OK;
    case OPT_JOIN: o->join = value; return ST_OK;
    case OPT_REQUIRE: return ST_OK; /* of earlier versions */
    case OPT_SOCKET_ROLE: return take_socket_role(o, value, e);
    case OPT_FIXED_QUEUES: o->fixed_queues = true; return ST_OK;
    case OPT_FORMAT:
    case OPT_LEVEL: return take_log(o, which, value, e);
    case OPT_TO: return take_version(o, value, e);
    case OPT_WAIT: return take_wait(o, value, e);
    case OPT_KEEP_ENDED: return take_days(o, value, e);
    case OPT_FORGET_LOST: return take_lost_days(o, value, e);
    case OPT_AUDIT_DAYS: return take_audit_days(o, value, e);
    case OPT_CHECKPOINT_WAIT: return take_checkpoint_wait(o, value, e);
    case OPT_ELASTIC_SETTLE: return take_elastic_settle(o, value, e);
    case OPT_CODE: return take_code(o, value, e);
    case OPT_SECRET_KEY: return add_path("secret-key-file", o->secret_keys, &o->n_secret_keys, value, e);
    case OPT_HELP: o->what = OPTIONS_HELP; return ST_OK;
    case OPT_VERSION: o->what = OPTIONS_VERSION; return ST_OK;
    case OPT_DATA_ROOT: return add_path("data-root", o->data_roots, &o->n_data_roots, value, e);
    case OPT_CHECKPOINT_ROOT: return add_path("checkpoint-root", o->checkpoint_roots, &o->n_checkpoint_roots, value, e);
    case OPT_DATA_EXCEPT: return add_path("data-except", o->data_except, &o->n_data_except, value, e);
    case OPT_LISTEN:
        if (o->n_listen == OPTIONS_MAX_LISTEN)
            return err_set(e, ST_INVALID_ARGUMENT, "--listen: more than %d addresses", OPTIONS_MAX_LISTEN);
        o->listen[o->n_listen++] = value;
        return ST_OK;
    default: return ST_OK;
    }
}

static const struct option *find_option(const char *name) {
    for (const struct option *known = OPTIONS; known->name; known++)
        if (strcmp(known->name, name) == 0 && known->val != OPT_FILE && known->val != OPT_HELP &&
            known->val != OPT_VERSION)
            return known;
    return NULL;
}

/* line: writable, without its end. */
static status_t take_line(struct options *o, char *line, struct err *e) {
    char *name = line + strspn(line, " \t");
    char *end = name + strlen(name);
    while (end > name && strchr(" \t\r", end[-1]))
        *--end = '\0';
    if (!*name || *name == '#')
        return ST_OK;
    char *value = name + strcspn(name, " \t=");
    if (*value)
        *value++ = '\0';
    value += strspn(value, " \t=");
    const struct option *known = find_option(name);
    if (!known)
        return err_set(e, ST_INVALID_ARGUMENT, "'%s' is not an option of a file; see --help", name);
    if (!*value != !known->has_arg)
        return err_set(e, ST_INVALID_ARGUMENT, "'%s' %s", name,
                       known->has_arg ? "needs a value; see --help" : "has no value; see --help");
    return take(o, known->val, value, e);
}

static status_t take_file(struct options *o, const char *path, struct err *e) {
    CLEANUP(bytes_done) struct bytes text;
    bytes_init(&text, FILE_BYTES);
    if (o->file_text)
        return err_set(e, ST_INVALID_ARGUMENT, "--options: only one file can be given");
    status_t st = file_read(path, &text, e);
    if (st != ST_OK)
        return err_prefix(e, st, "--options: ");
    o->file_text = alloc_copy_text(text.data ? text.data : "");
    int line_number = 1;
    for (char *line = o->file_text, *next; line; line = next, line_number++) {
        next = strchr(line, '\n');
        if (next)
            *next++ = '\0';
        char where[300];
        snprintf(where, sizeof where, "--options: %.200s:%d: ", path, line_number);
        st = take_line(o, line, e);
        if (st != ST_OK)
            return err_prefix(e, st, "%s", where);
    }
    return ST_OK;
}

static status_t check(const struct options *o, struct err *e) {
    if (o->what == OPTIONS_HELP || o->what == OPTIONS_VERSION)
        return ST_OK;
    if (o->what == OPTIONS_MAKE_KEY)
        return o->key_path ? ST_OK : err_set(e, ST_INVALID_ARGUMENT, "make-secret-key: FILE is missing");
    if (!o->database)
        return err_set(e, ST_INVALID_ARGUMENT, "--database is missing");
    if (o->what == OPTIONS_MIGRATE)
        return ST_OK;
    if (o->n_listen == 0)
        return err_set(e, ST_INVALID_ARGUMENT, "--listen is missing");
    if (!o->checkpoints || o->checkpoints[0] != '/')
        return err_set(e, ST_INVALID_ARGUMENT, "--checkpoints must be an absolute path");
    if (!o->tls.cert != !o->tls.key || (o->tls.ca && !o->tls.cert))
        return err_set(e, ST_INVALID_ARGUMENT, "--tls-cert and --tls-key belong together, --tls-ca needs them");
    if (!o->join != !o->ca_key || (o->join && !o->tls.ca))
        return err_set(e, ST_INVALID_ARGUMENT, "--join and --ca-key belong together, and need --tls-ca");
    if (o->join && strncmp(o->join, "unix:", 5) == 0)
        return err_set(e, ST_INVALID_ARGUMENT, "--join: '%s' is not host:port", o->join);
    return ST_OK;
}

void options_done(struct options *o) {
    free(o->file_text);
    o->file_text = NULL;
}

static status_t parse(int argc, char **argv, struct options *o, struct err *e) {
    opterr = 0;
    optind = 0; /* glibc: from the first argument, also the second time */
    int which;
    while ((which = getopt_long(argc, argv, ":", OPTIONS, NULL)) != -1) {
        if (which == ':')
            return err_set(e, ST_INVALID_ARGUMENT, "%s needs a value; see --help", argv[optind - 1]);
        if (which == '?')
            return err_set(e, ST_INVALID_ARGUMENT, "'%s' is not an option; see --help", argv[optind - 1]);
        TRY(take(o, which, optarg, e));
    }
    if (optind < argc && o->what == OPTIONS_SERVE) {
        if (strcmp(argv[optind], "migrate") == 0)
            o->what = OPTIONS_MIGRATE;
        else if (strcmp(argv[optind], "make-secret-key") == 0)
            o->what = OPTIONS_MAKE_KEY;
        else
            return err_set(e, ST_INVALID_ARGUMENT, "'%s' is not a command; see --help", argv[optind]);
        optind++;
    }
    if (optind < argc && o->what == OPTIONS_MAKE_KEY)
        o->key_path = argv[optind++];
    if (optind < argc)
        return err_set(e, ST_INVALID_ARGUMENT, "'%s' is one word too many; see --help", argv[optind]);
    return check(o, e);
}

status_t options_parse(int argc, char **argv, struct options *ret, struct err *e) {
    struct options o = {
        .what = OPTIONS_SERVE,
        .to = -1,
        .forget_lost_days = 30,
        .audit_days = 400,
        .metrics_jobs = METRICS_JOBS,
        .log_level = LOG_INFO,
    };
    access_users_init(&o.users);
    status_t st = parse(argc, argv, &o, e);
    if (st == ST_OK)
        *ret = o;
    else
        options_done(&o);
    return st;
}
