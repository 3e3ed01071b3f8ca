/* How far an operator wants jobs to be confined. */
#ifndef EXECUTOR_SANDBOX_MODE_H
#define EXECUTOR_SANDBOX_MODE_H

enum sandbox_mode {
    SANDBOX_OFF,       /* jobs may do what their user may */
    SANDBOX_AVAILABLE, /* what the host can enforce is enforced */
    SANDBOX_REQUIRE,   /* the executor does not start if the host cannot enforce something */
};

/* -1: not the name of a mode. */
int sandbox_mode_parse(const char *text);

#endif
