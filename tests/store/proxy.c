/* Copies bytes between clients and PostgreSQL, and cuts a connection at a chosen statement.
 *
 * One thread accepts clients, opens a connection to the server for each, and polls both ends of every pair. It searches
 * each piece that a client sends for the text of proxy_cut_at. At the chosen match it closes both ends: either before
 * it passes the piece on (the server never sees the statement), or after the server's first answer (the statement has
 * run, and the client does not know). A client writes a statement in one piece, so the text is never split. */
#include "tests/store/proxy.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { PAIRS = 32 };

struct proxy {
    char dir[64];
    struct sockaddr_un server;
    int listener, stop[2];
    pthread_t thread;
    pthread_mutex_t lock; /* guards the next three */
    char text[64];
    int count;
    enum proxy_cut how;
    atomic_int cuts;
    struct pair {
        int client, server;
    } pairs[PAIRS];
    int n;
};

static int dial(const struct proxy *p) {
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd, (const struct sockaddr *)&p->server, sizeof p->server) == 0)
        return fd;
    close(fd);
    return -1;
}

static int write_all(int fd, const char *data, ssize_t n) {
    while (n > 0) {
        ssize_t put = send(fd, data, (size_t)n, MSG_NOSIGNAL);
        if (put <= 0)
            return -1;
        data += put;
        n -= put;
    }
    return 0;
}

static int matches(struct proxy *p, const char *data, ssize_t n) {
    pthread_mutex_lock(&p->lock);
    int hit = p->count > 0 && memmem(data, (size_t)n, p->text, strlen(p->text)) && --p->count == 0;
    pthread_mutex_unlock(&p->lock);
    return hit;
}

/* Returns -1 if the pair must be closed. */
static int forward(struct proxy *p, struct pair *pair, int from_client) {
    static char data[1 << 16];
    ssize_t n = read(from_client ? pair->client : pair->server, data, sizeof data);
    if (n <= 0)
        return -1;
    if (!from_client || !matches(p, data, n))
        return write_all(from_client ? pair->server : pair->client, data, n);
    if (p->how == PROXY_CUT_ANSWER) {
        /* The first bytes of the answer show that the server has run the statement. */
        if (write_all(pair->server, data, n) == 0 && read(pair->server, data, sizeof data) <= 0)
            return -1;
    }
    atomic_fetch_add(&p->cuts, 1);
    return -1;
}

static void drop(struct proxy *p, int i) {
    close(p->pairs[i].client);
    close(p->pairs[i].server);
    p->pairs[i] = p->pairs[--p->n];
}

static void take(struct proxy *p) {
    int client = accept(p->listener, NULL, NULL), server = p->n < PAIRS ? dial(p) : -1;
    if (server < 0)
        close(client);
    else
        p->pairs[p->n++] = (struct pair){ client, server };
}

static void *run(void *ctx) {
    struct proxy *p = ctx;
    for (;;) {
        struct pollfd fds[2 + 2 * PAIRS] = { { p->stop[0], POLLIN, 0 }, { p->listener, POLLIN, 0 } };
        int n = p->n;
        for (int i = 0; i < n; i++) {
            fds[2 + 2 * i] = (struct pollfd){ p->pairs[i].client, POLLIN, 0 };
            fds[3 + 2 * i] = (struct pollfd){ p->pairs[i].server, POLLIN, 0 };
        }
        poll(fds, (nfds_t)(2 + 2 * n), -1);
        if (fds[0].revents)
            return NULL;
        for (int i = n - 1; i >= 0; i--)
            if ((fds[2 + 2 * i].revents && forward(p, &p->pairs[i], 1) < 0) ||
                (fds[3 + 2 * i].revents && forward(p, &p->pairs[i], 0) < 0))
                drop(p, i);
        if (fds[1].revents)
            take(p);
    }
}

struct proxy *proxy_start(const char *server_dir) {
    struct proxy *p = calloc(1, sizeof *p);
    snprintf(p->dir, sizeof p->dir, "/tmp/ty-proxy-XXXXXX");
    if (!mkdtemp(p->dir))
        abort();
    p->server.sun_family = AF_UNIX;
    snprintf(p->server.sun_path, sizeof p->server.sun_path, "%s/.s.PGSQL.5432", server_dir);
    struct sockaddr_un here = { .sun_family = AF_UNIX };
    snprintf(here.sun_path, sizeof here.sun_path, "%s/.s.PGSQL.5432", p->dir);
    pthread_mutex_init(&p->lock, NULL);
    p->listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (bind(p->listener, (struct sockaddr *)&here, sizeof here) || listen(p->listener, PAIRS) || pipe(p->stop) ||
        pthread_create(&p->thread, NULL, run, p))
        abort();
    return p;
}

const char *proxy_dir(const struct proxy *p) { return p->dir; }
int proxy_cuts(const struct proxy *p) { return atomic_load(&p->cuts); }

void proxy_cut_at(struct proxy *p, const char *text, int count, enum proxy_cut how) {
    pthread_mutex_lock(&p->lock);
    snprintf(p->text, sizeof p->text, "%s", text);
    p->count = count;
    p->how = how;
    pthread_mutex_unlock(&p->lock);
}

void proxy_stop(struct proxy *p) {
    if (write(p->stop[1], "x", 1) != 1)
        abort();
    pthread_join(p->thread, NULL);
    while (p->n)
        drop(p, 0);
    close(p->listener);
    close(p->stop[0]);
    close(p->stop[1]);
    char path[128];
    snprintf(path, sizeof path, "%s/.s.PGSQL.5432", p->dir);
    unlink(path);
    rmdir(p->dir);
    free(p);
}
