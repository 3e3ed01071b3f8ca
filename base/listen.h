/* Listens on a TCP address for a server that takes a socket. */
#ifndef BASE_LISTEN_H
#define BASE_LISTEN_H

#include "base/status.h"

#include <stdbool.h>

#define LISTEN_ADDRESS_BYTES 272

struct listening {
    int fd; /* non-blocking, close-on-exec */
    int port;
    bool local;                         /* a loopback address: no other machine can reach it */
    char address[LISTEN_ADDRESS_BYTES]; /* host:port, with the port that the system chose */
};

/* address: host:port with a numeric host, [::1]:0; for port 0 the system chooses. ALREADY_EXISTS if another program
 * uses it, INVALID_ARGUMENT if it is no address. The caller closes the descriptor. */
MUST_CHECK status_t listen_tcp(const char *address, int backlog, struct listening *ret, struct err *e);

#endif
