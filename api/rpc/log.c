#include "api/rpc/log.h"

#include "api/rpc/server.h"

#include <grpc/support/log.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>

static _Atomic(void (*)(int, const char *)) log_sink;
static pthread_once_t log_once = PTHREAD_ONCE_INIT;

static void log_line(gpr_log_func_args *args) {
    void (*sink)(int, const char *) = atomic_load(&log_sink);
    if (sink)
        sink((int)args->severity, args->message);
}

static void log_install(void) { gpr_set_log_function(log_line); }

void rpc_log_own(void) { pthread_once(&log_once, log_install); }

void rpc_log_to(void (*sink)(int severity, const char *line)) {
    rpc_log_own();
    atomic_store(&log_sink, sink);
}
