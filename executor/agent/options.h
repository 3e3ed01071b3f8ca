/* The command line of trainyard-executor. */
#ifndef EXECUTOR_AGENT_OPTIONS_H
#define EXECUTOR_AGENT_OPTIONS_H

#include "base/log.h"
#include "base/status.h"
#include "executor/agent/agent.h"

#include <limits.h>

#define OPTIONS_ROOTS_MOST 64

enum options_what { OPTIONS_RUN, OPTIONS_HELP, OPTIONS_VERSION };

/* Where it lies it stays: `agent` points into it. */
struct options {
    enum options_what what;
    struct agent_options agent;
    const char *data_roots[OPTIONS_ROOTS_MOST];
    long parent_pid; /* 0: none */
    enum log_format format;
    enum log_level level;
    char worker[PATH_MAX]; /* beside this program, when none is named */
};

/* Strings point into argv and the environment. INVALID_ARGUMENT names the option. */
MUST_CHECK status_t options_parse(int argc, char **argv, struct options *ret, struct err *e);
const char *options_help(void);

#endif
