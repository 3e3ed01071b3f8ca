#include "api/rpc/socket_accept.h"

#include "api/rpc/core.h"
#include "api/rpc/server_state.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

/* How long the thread pauses when the process has no descriptor left. */
enum { PAUSE_MS = 100 };

status_t socket_listen(const char *path, mode_t mode, int *ret_fd, struct err *e) {
    struct sockaddr_un name = { .sun_family = AF_UNIX };
    CLEANUP(closep) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0)
        return err_errno(e, "make a socket");
    strcpy(name.sun_path, path); /* rpc_address_parse has checked the length */
    unlink(path);
    /* bind sets the socket's mode. With chmod after bind, others could connect in between. */
    const mode_t before = umask(0777 & ~mode);
    const int bound = bind(fd, (const struct sockaddr *)&name, sizeof name);
    umask(before);
    if (bound != 0 || listen(fd, SOMAXCONN) != 0)
        return err_errno(e, "the socket '%s' cannot be listened on", path);
    *ret_fd = take_fd(&fd);
    return ST_OK;
}

/* Accepts all connections that wait. False: the process has no descriptor for the next one. */
static bool accept_waiting(struct rpc_server *s, int listener) {
    for (;;) {
        const int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0)
            rpc_core_add_connection(s->core, fd);
        else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)
            return false;
        else if (errno != EINTR && errno != ECONNABORTED)
            return true;
    }
}

static void *run(void *arg) {
    struct rpc_server *s = arg;
    struct pollfd fds[MAX_LISTENERS + 1];
    bool pauses = false;
    for (size_t i = 0; i < s->n_listeners; i++)
        fds[i + 1] = (struct pollfd){ .fd = s->listeners[i].fd, .events = POLLIN };
    fds[0] = (struct pollfd){ .fd = s->stop_fd, .events = POLLIN };
    for (;;) {
        const int n = poll(fds, pauses ? 1 : s->n_listeners + 1, pauses ? PAUSE_MS : -1);
        if (n > 0 && fds[0].revents)
            return NULL;
        for (size_t i = 0; !pauses && n > 0 && i < s->n_listeners; i++)
            if (fds[i + 1].revents && !accept_waiting(s, fds[i + 1].fd))
                pauses = true;
        if (n == 0)
            pauses = false;
    }
}

status_t socket_accept_start(struct rpc_server *s, struct err *e) {
    sigset_t all, before;
    if (s->n_listeners == 0)
        return ST_OK;
    s->stop_fd = eventfd(0, EFD_CLOEXEC);
    if (s->stop_fd < 0)
        return err_errno(e, "make an eventfd");
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are handled by the main thread only */
    const int failed = pthread_create(&s->acceptor, NULL, run, s);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (failed)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no thread to accept connections: %s", strerror(failed));
    s->accepts = true;
    return ST_OK;
}

void socket_accept_stop(struct rpc_server *s) {
    if (s->accepts) {
        eventfd_write(s->stop_fd, 1);
        pthread_join(s->acceptor, NULL);
        s->accepts = false;
    }
    closep(&s->stop_fd);
    for (size_t i = 0; i < s->n_listeners; i++)
        closep(&s->listeners[i].fd);
}
