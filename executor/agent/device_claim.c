#include "executor/agent/device_claim.h"

#include "base/cleanup.h"

#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

status_t device_claim_take(const char *uuid, int *ret, struct err *e) {
    struct sockaddr_un name = { .sun_family = AF_UNIX }; /* a first byte of 0: no file */
    const int n = snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "trainyard %s", uuid);
    CLEANUP(closep) int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return err_errno(e, "open a socket to claim %s by", uuid);
    if (bind(fd, (const struct sockaddr *)&name, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n)) ==
        0) {
        *ret = take_fd(&fd);
        return ST_OK;
    }
    return errno == EADDRINUSE ? err_set(e, ST_ALREADY_EXISTS, "another executor of this host has it")
                               : err_errno(e, "claim %s", uuid);
}
