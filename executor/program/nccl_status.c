#include "executor/program/nccl_status.h"

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/utf8.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LINE_BYTES = 1024, HOST_BYTES = 64 };

struct peer {
    int fd;
    deadline_ms_t until;
    size_t n; /* of text, not yet taken as a line */
    char text[LINE_BYTES];
};

static bool is_here(const char *host) {
    struct in_addr four;
    return strcasecmp(host, "localhost") == 0 || strcmp(host, "[::1]") == 0 ||
           (inet_pton(AF_INET, host, &four) == 1 && ntohl(four.s_addr) >> 24 == 127);
}

static bool wait_for(const struct peer *p, short events) {
    struct pollfd poller = { .fd = p->fd, .events = events };
    const int64_t left = p->until - clock_mono_ms();
    int ready;
    do
        ready = left > 0 ? poll(&poller, 1, (int)left) : 0;
    while (ready < 0 && errno == EINTR);
    return ready > 0;
}

static bool peer_connect(struct peer *p, const struct sockaddr *to, socklen_t n) {
    int fault = 0;
    socklen_t bytes = sizeof fault;
    p->fd = socket(to->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (p->fd >= 0 &&
        (connect(p->fd, to, n) == 0 || (errno == EINPROGRESS && wait_for(p, POLLOUT) &&
                                        getsockopt(p->fd, SOL_SOCKET, SO_ERROR, &fault, &bytes) == 0 && fault == 0)))
        return true;
    closep(&p->fd);
    return false;
}

static bool peer_open(struct peer *p, const char *address) {
    char host[HOST_BYTES], *end;
    const char *colon = strrchr(address, ':');
    if (!colon || colon - address >= HOST_BYTES)
        return false;
    snprintf(host, sizeof host, "%.*s", (int)(colon - address), address);
    const long port = strtol(colon + 1, &end, 10);
    if (*end || port < 1 || port > 65535 || !is_here(host))
        return false;
    struct sockaddr_in four = { .sin_family = AF_INET, .sin_port = htons((uint16_t)port) };
    struct sockaddr_in6 six = { .sin6_family = AF_INET6,
                                .sin6_port = four.sin_port,
                                .sin6_addr = IN6ADDR_LOOPBACK_INIT };
    if (inet_pton(AF_INET, host, &four.sin_addr) != 1)
        four.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return (*host != '[' && peer_connect(p, (const struct sockaddr *)&four, sizeof four)) ||
           ((*host == '[' || strcasecmp(host, "localhost") == 0) &&
            peer_connect(p, (const struct sockaddr *)&six, sizeof six));
}

static bool peer_send(struct peer *p, const char *line) {
    return send(p->fd, line, strlen(line), MSG_NOSIGNAL) == (ssize_t)strlen(line);
}

/* The next line, without its newline; a longer one in pieces. False: the peer has ended, or the time is over. */
static bool peer_line(struct peer *p, char ret[LINE_BYTES]) {
    for (;;) {
        const char *end = memchr(p->text, '\n', p->n);
        size_t n = end ? (size_t)(end - p->text) : p->n;
        bool over = false;
        if (!end && p->n < sizeof p->text - 1) {
            const ssize_t got = wait_for(p, POLLIN) ? recv(p->fd, p->text + p->n, sizeof p->text - 1 - p->n, 0) : 0;
            p->n += got > 0 ? (size_t)got : 0;
            over = got <= 0;
            if (!over || n == 0) {
                if (over)
                    return false;
                continue;
            }
        }
        memcpy(ret, p->text, n);
        ret[n] = '\0';
        n += end != NULL;
        memmove(p->text, p->text + n, p->n - n);
        p->n -= n;
        return true;
    }
}

void nccl_status_collect(const char *address, void (*put)(void *ctx, const char *line), void *ctx) {
    struct peer p = { .fd = -1, .until = deadline_in(NCCL_STATUS_MS) };
    char line[LINE_BYTES], printable[LINE_BYTES];
    if (!address || !peer_open(&p, address))
        return;
    if (peer_send(&p, "CLIENT PROTOCOL 2\n") && peer_line(&p, line) && strncasecmp(line, "SERVER PROTOCOL ", 16) == 0 &&
        peer_send(&p, "TIMEOUT 1\n") && peer_line(&p, line) && strcasecmp(line, "OK") == 0 &&
        peer_send(&p, "VERBOSE STATUS\n")) {
        put(ctx, "NCCL's report:");
        for (int i = 0; i < NCCL_STATUS_LINES && peer_line(&p, line); i++) {
            utf8_copy_printable(line, printable, sizeof printable);
            put(ctx, printable);
        }
    }
    closep(&p.fd);
}
