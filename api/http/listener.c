/* base/listen.h opens the socket, so that "in use" is a status of its own, and libmicrohttpd accepts its connections.
 * The options are an array, because those of TLS and those of the threads are left out where they do not apply. */
#include "api/http/listener.h"

#include "base/cleanup.h"
#include "base/file.h"

#include <gnutls/gnutls.h>
#include <gnutls/x509.h>
#include <string.h>

enum { PEM_BYTES = 1 << 20, MAX_OPTIONS = 12 };

#define TLS_VERSIONS "NORMAL:-VERS-ALL:+VERS-TLS1.3:+VERS-TLS1.2"

static status_t protect(struct http_listener *l, const struct http_listener_config *config, struct err *e) {
    if (!config->tokens || !config->cert || !*config->cert || !config->key || !*config->key)
        return err_set(e, ST_FAILED_PRECONDITION, "'%.80s' can be reached by other machines: %s", config->address,
                       config->page);
    bytes_init(&l->cert, PEM_BYTES);
    bytes_init(&l->key, PEM_BYTES);
    bytes_init(&l->ca, PEM_BYTES);
    if (config->ca)
        TRY(file_read(config->ca, &l->ca, e));
    TRY(file_read(config->cert, &l->cert, e));
    return file_read(config->key, &l->key, e);
}

/* Zeroed behind the last one, which is MHD_OPTION_END. */
static void options_of(const struct http_listener *l, const struct http_listener_config *config, int fd,
                       struct MHD_OptionItem ret[MAX_OPTIONS]) {
    size_t n = 0;
    ret[n++] = (struct MHD_OptionItem){ MHD_OPTION_LISTEN_SOCKET, fd, NULL };
    ret[n++] = (struct MHD_OptionItem){ MHD_OPTION_CONNECTION_LIMIT, (intptr_t)config->connections, NULL };
    ret[n++] = (struct MHD_OptionItem){ MHD_OPTION_CONNECTION_TIMEOUT, (intptr_t)config->idle_s, NULL };
    if (config->threads)
        ret[n++] = (struct MHD_OptionItem){ MHD_OPTION_THREAD_POOL_SIZE, (intptr_t)config->threads, NULL };
    if (config->ended)
        ret[n++] = (struct MHD_OptionItem){ MHD_OPTION_NOTIFY_COMPLETED, (intptr_t)config->ended, NULL };
    if (!l->local) {
        ret[n++] = (struct MHD_OptionItem){ MHD_OPTION_HTTPS_MEM_CERT, 0, l->cert.data };
        ret[n++] = (struct MHD_OptionItem){ MHD_OPTION_HTTPS_MEM_KEY, 0, l->key.data };
        ret[n++] = (struct MHD_OptionItem){ MHD_OPTION_HTTPS_PRIORITIES, 0, (void *)(uintptr_t)TLS_VERSIONS };
        if (config->ca)
            ret[n++] = (struct MHD_OptionItem){ MHD_OPTION_HTTPS_MEM_TRUST, 0, l->ca.data };
        ret[n++] = (struct MHD_OptionItem){ MHD_OPTION_PER_IP_CONNECTION_LIMIT, (intptr_t)config->per_host, NULL };
    }
    ret[n] = (struct MHD_OptionItem){ MHD_OPTION_END, 0, NULL };
}

status_t http_listener_open(const struct http_listener_config *config, struct http_listener *ret, struct err *e) {
    struct listening at;
    struct MHD_OptionItem options[MAX_OPTIONS];
    TRY(listen_tcp(config->address, (int)config->connections, &at, e));
    CLEANUP(closep) int fd = at.fd;
    ret->port = at.port;
    ret->local = at.local;
    memcpy(ret->address, at.address, sizeof ret->address);
    if (!at.local)
        TRY(protect(ret, config, e));
    options_of(ret, config, fd, options);
    /* ITC: without its channel, MHD_stop_daemon wakes a thread by the listening socket alone, which a thread at its
     * limit of connections does not watch. */
    const unsigned threads = config->threads
                                 ? MHD_USE_EPOLL_INTERNAL_THREAD
                                 : MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_THREAD_PER_CONNECTION | MHD_USE_POLL;
    ret->daemon = MHD_start_daemon(threads | MHD_USE_ITC | (at.local ? 0 : MHD_USE_TLS), 0, NULL, NULL, config->serve,
                                   config->ctx, MHD_OPTION_ARRAY, options, MHD_OPTION_END);
    if (!ret->daemon)
        return err_set(e, ST_INTERNAL, "libmicrohttpd does not start on '%s'%s", config->address,
                       at.local ? "" : ": are --tls-cert and --tls-key PEM files that belong together?");
    take_fd(&fd);
    return ST_OK;
}

bool http_listener_knows_client(const struct http_listener *l, struct MHD_Connection *connection) {
    gnutls_typed_vdata_st purpose = { .type = GNUTLS_DT_KEY_PURPOSE_OID,
                                      .data = (unsigned char *)(uintptr_t)GNUTLS_KP_TLS_WWW_CLIENT };
    unsigned wrong = 0;
    if (l->local)
        return true;
    const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_GNUTLS_SESSION);
    return info && info->tls_session && gnutls_certificate_verify_peers(info->tls_session, &purpose, 1, &wrong) == 0 &&
           wrong == 0;
}

void http_listener_close(struct http_listener *l) {
    if (l->daemon)
        MHD_stop_daemon(l->daemon); /* also closes the socket */
    l->daemon = NULL;
    if (l->key.data)
        explicit_bzero(l->key.data, l->key.len);
    bytes_done(&l->key);
    bytes_done(&l->cert);
    bytes_done(&l->ca);
}
