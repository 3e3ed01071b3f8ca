#include "executor/program/python_environment.h"

#include <stddef.h>

void python_environment_take(struct python_environment *p, Trainyard__V1__WorkerCommand *command) {
    if (p->last || !command->environment->last)
        trainyard__v1__worker_command__free_unpacked(command, NULL);
    else
        p->last = command;
}

void python_environment_done(struct python_environment *p) {
    if (p->last)
        trainyard__v1__worker_command__free_unpacked(p->last, NULL);
    p->last = NULL;
}

bool python_environment_is_missing(const struct python_environment *p, const Trainyard__V1__ProgramSpec *program) {
    return (program->python || (program->image && !program->image->root)) && !p->last;
}

Trainyard__V1__WorkerEnd__Cause python_environment_cause(const struct python_environment *p) {
    return p->last ? p->last->environment->cause : TRAINYARD__V1__WORKER_END__CAUSE__FINISHED;
}

static bool failed(const struct python_environment *p) {
    return python_environment_cause(p) != TRAINYARD__V1__WORKER_END__CAUSE__FINISHED;
}

status_t python_environment_status(const struct python_environment *p, struct err *e) {
    return failed(p) ? err_set(e, ST_FAILED_PRECONDITION, "%s", p->last->environment->message) : ST_OK;
}

const char *python_environment_path(const struct python_environment *p) {
    return p->last && !failed(p) ? p->last->environment->path : NULL;
}
