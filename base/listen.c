#include "base/listen.h"

#include "base/cleanup.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

static bool loopback(const struct sockaddr *address) {
    if (address->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr) >> 24 == 127;
    return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *)address)->sin6_addr);
}

static status_t split(const char *address, char host[256], char port[8], struct err *e) {
    const char *colon = strrchr(address, ':');
    size_t n = colon ? (size_t)(colon - address) : 0;
    bool brackets = n > 2 && address[0] == '[' && address[n - 1] == ']';
    if (!colon || n == 0 || n > 255 || strlen(colon + 1) == 0 || strlen(colon + 1) > 5)
        return err_set(e, ST_INVALID_ARGUMENT, "'%.80s' is not host:port", address);
    memcpy(host, address + brackets, n - 2 * brackets);
    host[n - 2 * brackets] = '\0';
    snprintf(port, 8, "%s", colon + 1);
    return ST_OK;
}

static status_t resolve(const char *address, const char *host, const char *port, struct sockaddr_storage *ret,
                        socklen_t *ret_n, struct err *e) {
    struct addrinfo hints = { .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV, .ai_socktype = SOCK_STREAM }, *found;
    int failed = getaddrinfo(host, port, &hints, &found);
    if (failed)
        return err_set(e, ST_INVALID_ARGUMENT, "'%.80s' is not a numeric host and port: %s", address,
                       gai_strerror(failed));
    memcpy(ret, found->ai_addr, found->ai_addrlen);
    *ret_n = found->ai_addrlen;
    freeaddrinfo(found);
    return ST_OK;
}

status_t listen_tcp(const char *address, int backlog, struct listening *ret, struct err *e) {
    char host[256], port[8];
    struct sockaddr_storage at = { 0 };
    socklen_t n_at;
    TRY(split(address, host, port, e));
    TRY(resolve(address, host, port, &at, &n_at, e));
    ret->local = loopback((struct sockaddr *)&at);
    CLEANUP(closep) int fd = socket(at.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_errno(e, "socket for '%s'", address);
    /* A program that starts again can bind again while old connections are in TIME_WAIT. */
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int));
    if (bind(fd, (struct sockaddr *)&at, n_at) != 0 || listen(fd, backlog) != 0) {
        if (errno == EADDRINUSE)
            return err_set(e, ST_ALREADY_EXISTS, "'%.80s' is in use by another program", address);
        return err_errno(e, "listen on '%s'", address);
    }
    getsockname(fd, (struct sockaddr *)&at, &n_at);
    ret->port = ntohs(at.ss_family == AF_INET ? ((struct sockaddr_in *)&at)->sin_port
                                              : ((struct sockaddr_in6 *)&at)->sin6_port);
    snprintf(ret->address, sizeof ret->address, at.ss_family == AF_INET ? "%s:%d" : "[%s]:%d", host, ret->port);
    ret->fd = take_fd(&fd);
    return ST_OK;
}
