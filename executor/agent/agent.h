/* What the parts of the agent share: the host's attempts with their ranks, and the way to the controller.
 *
 * An agent is one thread (reactor.h); nothing here is locked. */
#ifndef EXECUTOR_AGENT_AGENT_H
#define EXECUTOR_AGENT_AGENT_H

#include "api/rpc/tls.h"
#include "executor/agent/directory.h"
#include "executor/agent/inventory.h"
#include "executor/agent/reactor.h"
#include "executor/agent/spool.h"

#include <stdbool.h>
#include <stddef.h>

struct attach;
struct attempts;
struct devices;
struct report;
struct samples;

struct agent_options {
    const char *controller; /* as api/rpc reads an address */
    struct rpc_tls tls;
    const char *token, *token_file; /* or NULL */
    const char *directory;
    const char *address; /* where other hosts reach this host's ranks */
    const char *worker;  /* the program's path */
    const char *nvml;    /* the library's name */
    struct nvml_part gpu_part;
    const char
        *library_path; /* where workers on GPUs look for libraries first, DIR[:DIR]...; NULL: where the loader does */
    const char *const *data_roots;
    size_t n_data_roots;
    int slots;
    int64_t spool_bytes;
    int hang_ms; /* a rank without a sign of life for so long is killed, one without progress HANG_WAITING_MS later */
};

struct agent {
    const struct agent_options *options;
    struct inventory inventory;
    struct nvml *nvml; /* in which the inventory was found, until devices_open has taken it */
    struct reactor *loop;
    struct directory *directory;
    struct spool *spool;
    struct devices *devices;
    struct attempts *attempts;
    struct samples *samples;
    struct attach *attach;
    struct report *report;
    bool leaving;                                /* SIGTERM came: workers are being stopped */
    void (*attached)(const struct agent *agent); /* at each Welcome; NULL for none */
};

#endif
