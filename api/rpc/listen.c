#include "api/rpc/credentials.h"
#include "api/rpc/server_state.h"
#include "api/rpc/socket_accept.h"
#include "api/rpc/socket_lock.h"

#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

/* gRPC reports only that it could not listen. This function tries the same steps with sockets to find the cause. */
static status_t explain_tcp(const struct rpc_address *a, const struct rpc_tls *tls, struct err *e) {
    char port[8];
    snprintf(port, sizeof port, "%d", a->port);
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE }, *found;
    int failed = getaddrinfo(a->host, port, &hints, &found);
    if (failed)
        return err_set(e, ST_NOT_FOUND, "the host '%s' cannot be resolved: %s", a->host, gai_strerror(failed));
    CLEANUP(closep) int fd = socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int on = 1;
    int cause = fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
                        bind(fd, found->ai_addr, found->ai_addrlen) == 0 && listen(fd, 1) == 0
                    ? 0
                    : errno;
    freeaddrinfo(found);
    if (cause == EADDRINUSE)
        return err_set(e, ST_ALREADY_EXISTS, "the address %s is in use by another process", a->text);
    if (cause)
        return err_set(e, status_of_errno(cause), "the address %s cannot be listened on: %s", a->text, strerror(cause));
    if (tls && tls->cert && tls->ca)
        return err_set(e, ST_INVALID_ARGUMENT,
                       "TLS on %s cannot use the certificate '%s' with the key '%s', or the CA '%s'", a->text,
                       tls->cert, tls->key, tls->ca);
    if (tls && tls->cert)
        return err_set(e, ST_INVALID_ARGUMENT, "TLS on %s cannot use the certificate '%s' with the key '%s'", a->text,
                       tls->cert, tls->key);
    return err_set(e, ST_INTERNAL, "the address %s cannot be listened on", a->text);
}

static status_t listen_tcp(struct rpc_server *s, struct rpc_address *a, const struct rpc_tls *tls, struct err *e) {
    bool local;
    TRY(rpc_address_is_local(a, &local, e));
    bool mutual = tls && tls->cert && tls->cert[0] && tls->ca && tls->ca[0];
    if (!local && !mutual)
        return err_set(e, ST_FAILED_PRECONDITION,
                       "the address %s can be reached by other machines: it needs a TLS certificate with its key, and "
                       "the CA of the certificates that clients must show",
                       a->text);
    if (!local && !s->config.access)
        return err_set(e, ST_FAILED_PRECONDITION,
                       "the address %s can be reached by other machines, and the server has no access rules", a->text);
    if (s->n_certificates == MAX_LISTENERS)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "a server listens on at most %d addresses with TLS", MAX_LISTENERS);
    grpc_server_credentials *credentials;
    struct certificates *certificates;
    TRY(credentials_server(tls, &credentials, &certificates, e));
    if (certificates)
        s->certificates[s->n_certificates++] = certificates;
    int port = grpc_server_add_http2_port(s->core, a->text, credentials);
    grpc_server_credentials_release(credentials);
    if (port == 0)
        return explain_tcp(a, tls, e);
    snprintf(a->text, sizeof a->text, strchr(a->host, ':') ? "[%s]:%d" : "%s:%d", a->host, port);
    return ST_OK;
}

/* gRPC's local credentials refuse other machines. They mark the connection as one that is not plain. */
status_t rpc_server_listen_within(struct rpc_server *s, char *ret_bound, struct err *e) {
    if (!s->config.access)
        return err_set(e, ST_FAILED_PRECONDITION, "the server has no access rules for its own process");
    grpc_server_credentials *credentials = grpc_local_server_credentials_create(LOCAL_TCP);
    const int port = grpc_server_add_http2_port(s->core, "127.0.0.1:0", credentials);
    grpc_server_credentials_release(credentials);
    if (port == 0)
        return err_set(e, ST_INTERNAL, "no port of 127.0.0.1 can be listened on");
    snprintf(ret_bound, RPC_ADDRESS_BYTES, "127.0.0.1:%d", port);
    return ST_OK;
}

static status_t listen_unix(struct rpc_server *s, const struct rpc_address *a, struct err *e) {
    if (s->n_listeners == MAX_LISTENERS)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "a server listens on at most %d sockets", MAX_LISTENERS);
    int lock_fd;
    TRY(socket_lock_take(a->path, &lock_fd, e));
    int fd;
    status_t st = socket_listen(a->path, s->config.sockets_for_all ? 0666 : 0600, &fd, e);
    if (st != ST_OK) {
        socket_lock_give(a->path, lock_fd);
        return st;
    }
    struct listener *l = &s->listeners[s->n_listeners++];
    strcpy(l->path, a->path);
    l->lock_fd = lock_fd;
    l->fd = fd;
    return ST_OK;
}

status_t rpc_server_listen(struct rpc_server *s, const char *text, const struct rpc_tls *tls, char *ret_bound,
                           struct err *e) {
    struct rpc_address address;
    TRY(rpc_address_parse(text, &address, e));
    TRY(address.is_unix ? listen_unix(s, &address, e) : listen_tcp(s, &address, tls, e));
    if (ret_bound)
        snprintf(ret_bound, RPC_ADDRESS_BYTES, "%s", address.text);
    return ST_OK;
}
