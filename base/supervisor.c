#include "base/supervisor.h"

#include <errno.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* Signs of life within the time after which the watchdog bites: one may come late. */
#define SIGNS 3

/* path: absolute, or '@' and a name in the abstract namespace. -1: none. */
static int open_socket(const char *path) {
    struct sockaddr_un address = { .sun_family = AF_UNIX };
    const size_t n = path ? strlen(path) : 0;
    if (n < 2 || n >= sizeof address.sun_path || (path[0] != '/' && path[0] != '@'))
        return -1;
    memcpy(address.sun_path, path, n);
    if (path[0] == '@')
        address.sun_path[0] = '\0';
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return -1;
    if (connect(fd, (struct sockaddr *)&address, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n)) == 0)
        return fd;
    close(fd);
    return -1;
}

/* The watchdog of another process, such as a shell around this one, is not ours. */
static int64_t watchdog_ms(void) {
    const char *usec = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    if (!usec || (pid && atoll(pid) != getpid()))
        return 0;
    const long long us = atoll(usec);
    return us > 0 ? us / 1000 : 0;
}

void supervisor_init(struct supervisor *s) {
    *s = (struct supervisor){ .fd = open_socket(getenv("NOTIFY_SOCKET")), .beats = -1 };
    if (s->fd >= 0)
        s->every_ms = watchdog_ms() / SIGNS;
    unsetenv("NOTIFY_SOCKET");
    unsetenv("WATCHDOG_USEC");
    unsetenv("WATCHDOG_PID");
}

void supervisor_done(struct supervisor *s) {
    if (s->fd >= 0)
        close(s->fd);
    s->fd = -1;
}

void supervisor_notify(const struct supervisor *s, const char *message) {
    if (s->fd < 0)
        return;
    ssize_t sent;
    do
        sent = send(s->fd, message, strlen(message), MSG_NOSIGNAL);
    while (sent < 0 && errno == EINTR);
}

void supervisor_watch(struct supervisor *s, int64_t beats, int64_t now_ms) {
    if (s->every_ms == 0 || now_ms < s->next || beats == s->beats)
        return;
    supervisor_notify(s, "WATCHDOG=1");
    s->beats = beats;
    s->next = now_ms + s->every_ms;
}
