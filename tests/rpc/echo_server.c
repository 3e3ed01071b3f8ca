/* rpc_echo_server ADDRESS...: serves the echo service until SIGTERM or SIGINT; prints `ready ADDRESS` per address. */
#include "tests/rpc/echo.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>

static status_t serve(int n, char **addresses, const struct rpc_tls *tls, struct err *e) {
    static struct echo echo;
    CLEANUP(rpc_server_closep) struct rpc_server *server = NULL;
    TRY(echo_open(NULL, &echo, &server, e));
    char bound[8][RPC_ADDRESS_BYTES];
    for (int i = 0; i < n; i++)
        TRY(rpc_server_listen(server, addresses[i], tls, bound[i], e));
    TRY(rpc_server_start(server, e));
    for (int i = 0; i < n; i++)
        printf("ready %s\n", bound[i]);
    fflush(stdout);
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    int got;
    sigwait(&ends, &got);
    rpc_server_stop(server, 500);
    return ST_OK;
}

int main(int argc, char **argv) {
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    pthread_sigmask(SIG_BLOCK, &ends, NULL);
    struct rpc_tls tls = { .cert = getenv("ECHO_CERT"), .key = getenv("ECHO_KEY"), .ca = getenv("ECHO_CA") };
    struct err e = { "" };
    if (serve(argc > 9 ? 8 : argc - 1, argv + 1, tls.cert ? &tls : NULL, &e) == ST_OK)
        return 0;
    fprintf(stderr, "rpc_echo_server: %s\n", e.msg);
    return 1;
}
