#include "executor/agent/inventory.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* The five calls of NVML that are used, as its documentation declares them; 0 is success. */
struct nvml_memory {
    unsigned long long total, free, used;
};
struct nvml {
    int (*init)(void);
    int (*shutdown)(void);
    int (*count)(unsigned *);
    int (*handle)(unsigned, void **);
    int (*name)(void *, char *, unsigned);
    int (*memory)(void *, struct nvml_memory *);
};

static int nvml_load(void *library, struct nvml *n) {
    struct {
        const char *symbol;
        void **at;
    } table[] = {
        { "nvmlInit_v2", (void **)&n->init },
        { "nvmlShutdown", (void **)&n->shutdown },
        { "nvmlDeviceGetCount_v2", (void **)&n->count },
        { "nvmlDeviceGetHandleByIndex_v2", (void **)&n->handle },
        { "nvmlDeviceGetName", (void **)&n->name },
        { "nvmlDeviceGetMemoryInfo", (void **)&n->memory },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (!(*table[i].at = dlsym(library, table[i].symbol)))
            return -1;
    return 0;
}

static void devices_list(struct inventory *inv, const struct nvml *n) {
    unsigned count = 0;
    int rc = n->count(&count);
    if (rc != 0 || count == 0) {
        snprintf(inv->device_reason, sizeof inv->device_reason,
                 rc ? "NVML cannot count the GPUs (code %d)" : "the NVIDIA driver sees no GPU", rc);
        return;
    }
    for (unsigned i = 0; i < count && inv->n_devices < INVENTORY_DEVICES_MOST; i++) {
        struct inventory_device *d = &inv->devices[inv->n_devices];
        struct nvml_memory memory = { 0 };
        void *handle;
        if (n->handle(i, &handle) != 0 || n->name(handle, d->model, sizeof d->model) != 0 ||
            n->memory(handle, &memory) != 0)
            continue;
        d->model[sizeof d->model - 1] = '\0';
        d->index = (int)i;
        d->memory_bytes = (int64_t)memory.total;
        inv->n_devices++;
    }
    if (inv->n_devices == 0)
        snprintf(inv->device_reason, sizeof inv->device_reason, "NVML lists %u GPUs but describes none", count);
}

static void devices_find(struct inventory *inv, const char *name) {
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
        snprintf(inv->device_reason, sizeof inv->device_reason, "no NVIDIA driver: %s", dlerror());
        return;
    }
    struct nvml n;
    int rc;
    if (nvml_load(library, &n) != 0)
        snprintf(inv->device_reason, sizeof inv->device_reason, "%s lacks a function that is needed", name);
    else if ((rc = n.init()) != 0)
        snprintf(inv->device_reason, sizeof inv->device_reason, "NVML does not start (code %d)", rc);
    else {
        devices_list(inv, &n);
        n.shutdown();
    }
    dlclose(library);
}

void inventory_take(struct inventory *ret, int slots, const char *nvml) {
    memset(ret, 0, sizeof *ret);
    if (gethostname(ret->hostname, sizeof ret->hostname - 1) < 0)
        snprintf(ret->hostname, sizeof ret->hostname, "localhost");
    cpu_set_t set;
    ret->cores = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    ret->slots = slots > 0 ? slots : ret->cores;
    ret->threads_per_rank = ret->cores / ret->slots > 0 ? ret->cores / ret->slots : 1;
    devices_find(ret, nvml);
}
