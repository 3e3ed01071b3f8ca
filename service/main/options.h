/* The command line of trainyard-controller. */
#ifndef SERVICE_MAIN_OPTIONS_H
#define SERVICE_MAIN_OPTIONS_H

#include "api/rpc/tls.h"
#include "base/log.h"
#include "base/status.h"

#include <stdbool.h>

#define OPTIONS_LISTEN_MOST 8
#define OPTIONS_ROOTS_MOST  16

enum options_what { OPTIONS_SERVE, OPTIONS_MIGRATE, OPTIONS_HELP, OPTIONS_VERSION };

struct options {
    enum options_what what;
    const char *database, *checkpoints, *http;
    const char *listen[OPTIONS_LISTEN_MOST];
    int n_listen;
    const char *data_roots[OPTIONS_ROOTS_MOST]; /* whose data ValidateJob may look at */
    int n_data_roots;
    int keep_ended_days; /* 0 = for ever */
    struct rpc_tls tls;
    bool require_tokens; /* of plain TCP too */
    enum log_format log_format;
    enum log_level log_level;
    int to; /* migrate: schema version; -1 = the newest */
};

/* Strings point into argv. INVALID_ARGUMENT names the option. */
MUST_CHECK status_t options_parse(int argc, char **argv, struct options *ret, struct err *e);
const char *options_help(void);

#endif
