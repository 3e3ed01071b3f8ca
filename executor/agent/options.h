/* The command line of trainyard-executor. */
#ifndef EXECUTOR_AGENT_OPTIONS_H
#define EXECUTOR_AGENT_OPTIONS_H

#include "base/log.h"
#include "base/status.h"
#include "executor/agent/host.h"

#include <limits.h>

enum options_what { OPTIONS_RUN, OPTIONS_HELP, OPTIONS_VERSION };

/* Must not be moved: `agent` points into it. */
struct options {
    enum options_what what;
    struct agent_options agent;
    const char *data_roots[AGENT_PATHS_MAX], *data_except[AGENT_PATHS_MAX], *checkpoint_roots[AGENT_PATHS_MAX],
        *writable_roots[AGENT_PATHS_MAX];
    long parent_pid; /* 0: none */
    enum log_format format;
    enum log_level level;
    char worker[PATH_MAX], program[PATH_MAX], code[PATH_MAX], environment[PATH_MAX],
        data[PATH_MAX]; /* the defaults: beside this program */
};

/* Strings point into argv and the environment. INVALID_ARGUMENT names the option. */
MUST_CHECK status_t options_parse(int argc, char **argv, struct options *ret, struct err *e);
const char *options_help(void);

#endif
