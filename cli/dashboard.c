/* dashboard: serves the web page to the user's browser, and calls the controller with the user's identity. */
#include "api/rpc/client.h"
#include "cli/client.h"
#include "cli/command.h"
#include "web/server/web.h"

#include <signal.h>
#include <stdio.h>

enum { PORT_MAX = 65535 };

struct dashboard_args {
    int64_t port;
};

static status_t wait_for_stop(struct err *e) {
    sigset_t set;
    int got;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    if (sigwait(&set, &got) != 0)
        return err_set(e, ST_INTERNAL, "cannot wait for a signal");
    sigprocmask(SIG_UNBLOCK, &set, NULL); /* a second signal does not wait for the calls that still run */
    return ST_OK;
}

/* Before any thread starts, so that all threads block them, and sigwait gets them. */
static void signals_block(void) {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
}

static status_t run(struct cli *c, const void *args, char *const words[], struct err *e) {
    (void)words;
    const struct dashboard_args *a = args;
    if (a->port < 0 || a->port > PORT_MAX)
        return err_set(e, ST_INVALID_ARGUMENT, "--port: %lld is not a port from 0 to %d", (long long)a->port, PORT_MAX);
    signals_block();
    TRY(client_open(c, e));
    CLEANUP(web_closep) struct web *web = NULL;
    char address[32];
    snprintf(address, sizeof address, "127.0.0.1:%d", (int)a->port);
    status_t st = web_open(&(struct web_config){ .address = address, .channel = client_channel(c) }, &web, e);
    if (st == ST_ALREADY_EXISTS)
        return err_set(e, st, "port %d is in use by another program: choose another one with --port, or 0 for any",
                       (int)a->port);
    TRY(st);
    printf("%s/#key=%s\n", web_address(web), web_key(web));
    fflush(stdout);
    fprintf(stderr, "Open this address in a browser on this machine. Ctrl-C stops the page.\n");
    return wait_for_stop(e);
}

static const struct option_row options[] = {
    { "port", 'p', "PORT", "port of 127.0.0.1 for the page; 0: any free port", OPTION_INT,
      offsetof(struct dashboard_args, port), "7702" },
    { 0 },
};

const struct command command_dashboard = {
    .name = "dashboard",
    .arguments = "[--port PORT]",
    .summary = "Serves the web page on this machine: jobs, curves, logs, hosts.",
    .details =
        "Serves a page with jobs, curves, logs and hosts on 127.0.0.1, until Ctrl-C, and prints its address. The page\n"
        "has your rights: its calls use your token. The address contains a key, so that no other user of this machine\n"
        "can open the page; do not pass the address on.",
    .example = "trainyard dashboard",
    .options = options,
    .args_bytes = sizeof(struct dashboard_args),
    .run = run,
};
