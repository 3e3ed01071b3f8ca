#include "executor/program/launcher.h"

#include "base/process.h"

#include <errno.h>
#include <string.h>

bool launcher_is_host(const Trainyard__V1__ProgramSpec *program) {
    return program->launcher && strcmp(program->launcher, "host") == 0;
}

bool launcher_follows(const Trainyard__V1__ProgramSpec *program, const struct place *place) {
    return launcher_is_host(program) && place->local_rank > 0;
}

status_t launcher_leader_open(const struct place *place, int *ret, struct err *e) {
    *ret = process_pidfd(place->leader);
    return *ret >= 0 || errno == ESRCH ? ST_OK : err_errno(e, "open a handle of the leader of this host's ranks");
}
