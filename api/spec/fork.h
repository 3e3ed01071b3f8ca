/* The rules of a fork: a job that begins with the whole state of another job. */
#ifndef API_SPEC_FORK_H
#define API_SPEC_FORK_H

#include "api/spec/spec.h"

/* The checkpoint that the fork begins with. */
struct spec_origin {
    const Trainyard__V1__JobSpec *spec; /* of the origin's job, resolved */
    int64_t job, step;                  /* its number; the step of the checkpoint */
};

/* A fork has the model of its origin, except for dropout, and its data; it does at least one more step. `spec` is the
 * fork's, resolved. The fork of a program is a program, of any command. Adds one line to p for each field that breaks a
 * rule. Pure. */
void spec_check_fork(const Trainyard__V1__JobSpec *spec, const struct spec_origin *origin, struct spec_problems *p);

#endif
