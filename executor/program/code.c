#include "executor/program/code.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

void code_take(struct code *c, Trainyard__V1__WorkerCommand *command) {
    if (c->command)
        trainyard__v1__worker_command__free_unpacked(command, NULL);
    else
        c->command = command;
}

void code_done(struct code *c) {
    if (c->command)
        trainyard__v1__worker_command__free_unpacked(c->command, NULL);
    c->command = NULL;
}

bool code_is_missing(const struct code *c, const Trainyard__V1__ProgramSpec *program) {
    return program->code && !c->command;
}

static bool failed(const struct code *c) {
    return c->command && c->command->code_ready->cause != TRAINYARD__V1__WORKER_END__CAUSE__FINISHED;
}

status_t code_status(const struct code *c, struct err *e) {
    return failed(c) ? err_set(e, ST_FAILED_PRECONDITION, "%s", c->command->code_ready->message) : ST_OK;
}

const char *code_folder(const struct code *c) { return c->command && !failed(c) ? c->command->code_ready->path : NULL; }

/* Whether the command is a file of the code that no host can execute. A folder that is gone says nothing. */
static bool command_is_wrong(const char *folder, const char *command) {
    char path[PATH_MAX];
    struct stat st;
    if (*command == '/' || !strchr(command, '/') || stat(folder, &st) < 0 ||
        snprintf(path, sizeof path, "%s/%s", folder, command) >= (int)sizeof path)
        return false;
    if (stat(path, &st) < 0)
        return errno == ENOENT || errno == ENOTDIR;
    return !S_ISREG(st.st_mode) || (st.st_mode & (S_IXUSR | S_IXGRP | S_IXOTH)) == 0;
}

Trainyard__V1__WorkerEnd__Cause code_cause(const struct code *c, const Trainyard__V1__ProgramSpec *program) {
    const char *command = program->n_command ? program->command[0] : "";
    if (failed(c))
        return c->command->code_ready->cause;
    return code_folder(c) && command_is_wrong(code_folder(c), command) ? TRAINYARD__V1__WORKER_END__CAUSE__BAD_SPEC
                                                                       : TRAINYARD__V1__WORKER_END__CAUSE__HOST_FAULT;
}
