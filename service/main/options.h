/* The command line of trainyard-controller. */
#ifndef SERVICE_MAIN_OPTIONS_H
#define SERVICE_MAIN_OPTIONS_H

#include "api/rpc/tls.h"
#include "base/log.h"
#include "base/status.h"
#include "service/rpc/access_users.h"

#include <stdbool.h>

#define OPTIONS_MAX_LISTEN 8
#define OPTIONS_MAX_ROOTS  16

enum options_what { OPTIONS_SERVE, OPTIONS_MIGRATE, OPTIONS_MAKE_KEY, OPTIONS_HELP, OPTIONS_VERSION };

struct options {
    enum options_what what;
    const char *database, *checkpoints, *http, *web, *notify, *access_log;
    const char *listen[OPTIONS_MAX_LISTEN];
    int n_listen;
    const char *data_roots[OPTIONS_MAX_ROOTS];       /* ValidateJob may read data below these */
    const char *data_except[OPTIONS_MAX_ROOTS];      /* but not these files and folders */
    const char *checkpoint_roots[OPTIONS_MAX_ROOTS]; /* in addition to `checkpoints` */
    const char *secret_keys[OPTIONS_MAX_ROOTS];      /* files; the first key encrypts */
    int n_data_roots, n_data_except, n_checkpoint_roots, n_secret_keys;
    const char *key_path; /* make-secret-key: the new file */
    int keep_ended_days;  /* 0 = keep for ever */
    int forget_lost_days; /* 0 = never */
    int audit_days;
    int checkpoint_wait_s; /* 0 = the default */
    int elastic_settle_s;  /* the same */
    bool fixed_queues;     /* jobs of queues that were not created are refused */
    int code_mib;          /* 0 = the default */
    int metrics_jobs;
    int max_jobs;    /* 0 = the default */
    char *file_text; /* of --options, to which strings above may point; NULL: none. Owned */
    struct rpc_tls tls;
    const char *join, *ca_key; /* where hosts join; both or none */
    struct access_users users; /* who may call over unix sockets without a token */
    bool sockets_for_all;      /* --socket-role is given */
    enum log_format log_format;
    enum log_level log_level;
    int to;     /* migrate: schema version; -1 = the newest */
    int wait_s; /* migrate: how long to wait until PostgreSQL accepts connections */
};

/* Strings point into argv and file_text. INVALID_ARGUMENT names the option. May be called again, to read the file of
 * --options again. */
MUST_CHECK status_t options_parse(int argc, char **argv, struct options *ret, struct err *e);
void options_done(struct options *o);
const char *options_help(void);

#endif
