/* NVML through dlopen.
 *
 * A table lists the functions; required ones must be in the library, and a missing optional one leaves its value
 * unreported. nvml_open takes the handles of the devices of one part of the driver's list, once: a driver may number
 * its devices anew after one is lost. A device that the driver does not open stays in the list with the error code, so
 * that the device is shown with the reason. A call that fails leaves its value unreported; a device counts as lost only
 * if NVML says that it cannot be reached. */
#include "executor/agent/nvml.h"

#include "base/alloc.h"
#include "base/limits.h"

#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* As NVML's documentation declares them; 0 is success. Its ABI is stable, and suffixes name versions. */
struct memory {
    unsigned long long total, free, used;
};
struct utilization {
    unsigned gpu, memory;
};
struct pci {
    char legacy[16];
    unsigned domain, bus, device, pci_device, subsystem;
    char id[32];
};
struct event {
    void *device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
};

enum { TEMPERATURE_GPU = 0, ECC_CORRECTED = 0, ECC_UNCORRECTED = 1, SINCE_LOAD = 0, REMOTE_SWITCH = 2, LINKS_MAX = 18 };
enum { EVENT_XID = 8, NOT_SUPPORTED = 3, TIMED_OUT = 10, GPU_IS_LOST = 15 };

/* Required functions first. Without one of the others its value is not reported. Older drivers have ThrottleReasons. */
#define NEEDED(F)                                                                                                      \
    F(nvmlInit_v2, (void))                                                                                             \
    F(nvmlShutdown, (void))                                                                                            \
    F(nvmlDeviceGetCount_v2, (unsigned *))                                                                             \
    F(nvmlDeviceGetHandleByIndex_v2, (unsigned, void **))                                                              \
    F(nvmlDeviceGetName, (void *, char *, unsigned))                                                                   \
    F(nvmlDeviceGetUUID, (void *, char *, unsigned))                                                                   \
    F(nvmlDeviceGetMemoryInfo, (void *, struct memory *))
#define OPTIONAL(F)                                                                                                    \
    F(nvmlDeviceGetPciInfo_v3, (void *, struct pci *))                                                                 \
    F(nvmlDeviceGetCudaComputeCapability, (void *, int *, int *))                                                      \
    F(nvmlDeviceGetUtilizationRates, (void *, struct utilization *))                                                   \
    F(nvmlDeviceGetPowerUsage, (void *, unsigned *))                                                                   \
    F(nvmlDeviceGetTemperature, (void *, int, unsigned *))                                                             \
    F(nvmlDeviceGetTotalEccErrors, (void *, int, int, unsigned long long *))                                           \
    F(nvmlDeviceGetCurrentClocksEventReasons, (void *, unsigned long long *))                                          \
    F(nvmlDeviceGetCurrentClocksThrottleReasons, (void *, unsigned long long *))                                       \
    F(nvmlDeviceGetTopologyCommonAncestor, (void *, void *, int *))                                                    \
    F(nvmlDeviceGetNvLinkState, (void *, unsigned, int *))                                                             \
    F(nvmlDeviceGetNvLinkRemoteDeviceType, (void *, unsigned, int *))                                                  \
    F(nvmlDeviceGetNvLinkRemotePciInfo_v2, (void *, unsigned, struct pci *))                                           \
    F(nvmlEventSetCreate, (void **))                                                                                   \
    F(nvmlEventSetFree, (void *))                                                                                      \
    F(nvmlDeviceRegisterEvents, (void *, unsigned long long, void *))                                                  \
    F(nvmlEventSetWait_v2, (void *, struct event *, unsigned))

struct nvml {
    void *library;
    bool started;
    int first, count;                /* of the driver's list */
    void *devices[NVML_DEVICES_MAX]; /* NULL: the driver does not open it, */
    int refused[NVML_DEVICES_MAX];   /* with this code */
    void *events;                    /* NULL: the driver reports none */
#define MEMBER(f, arguments) int(*f) arguments;
    NEEDED(MEMBER)
    OPTIONAL(MEMBER)
#undef MEMBER
};

struct nvml *nvml_close(struct nvml *n) {
    if (!n)
        return NULL;
    if (n->events)
        n->nvmlEventSetFree(n->events);
    if (n->started)
        n->nvmlShutdown();
    if (n->library)
        dlclose(n->library);
    free(n);
    return NULL;
}

static status_t functions_find(struct nvml *n, const char *name, struct err *e) {
    bool whole = true;
#define FIND(f, arguments) *(void **)&n->f = dlsym(n->library, #f);
#define FIND_NEEDED(f, arguments)                                                                                      \
    FIND(f, arguments)                                                                                                 \
    whole = whole && n->f;
    NEEDED(FIND_NEEDED)
    OPTIONAL(FIND)
#undef FIND
#undef FIND_NEEDED
    return whole ? ST_OK : err_set(e, ST_FAILED_PRECONDITION, "%s lacks a required function", name);
}

static void events_open(struct nvml *n) {
    if (!n->nvmlEventSetCreate || !n->nvmlEventSetFree || !n->nvmlDeviceRegisterEvents || !n->nvmlEventSetWait_v2 ||
        n->nvmlEventSetCreate(&n->events) != 0) {
        n->events = NULL;
        return;
    }
    for (int i = 0; i < n->count; i++)
        if (n->devices[i])
            (void)n->nvmlDeviceRegisterEvents(n->devices[i], EVENT_XID,
                                              n->events); /* fails for a device that reports no Xids */
}

static status_t part_take(struct nvml *n, int listed, struct nvml_part part, struct err *e) {
    const int parts = part.of ? part.of : 1, number = part.of ? part.number : 1;
    n->first = (listed * (number - 1) + parts - 1) / parts;
    const int end = (listed * number + parts - 1) / parts;
    if (end == n->first)
        return err_set(e, ST_FAILED_PRECONDITION,
                       "this host's %d GPU%s go%s to other executors: this one has part %d of %d", listed,
                       listed == 1 ? "" : "s", listed == 1 ? "es" : "", number, parts);
    for (; n->first + n->count < end && n->count < NVML_DEVICES_MAX; n->count++) {
        void **device = &n->devices[n->count];
        n->refused[n->count] = n->nvmlDeviceGetHandleByIndex_v2((unsigned)(n->first + n->count), device);
        if (n->refused[n->count] != 0)
            *device = NULL;
    }
    return ST_OK;
}

status_t nvml_open(const char *library, struct nvml_part part, struct nvml **ret, struct err *e) {
    CLEANUP(nvml_closep) struct nvml *n = alloc_zeroed(1, sizeof *n);
    unsigned count = 0;
    int rc;
    n->library = dlopen(library, RTLD_NOW | RTLD_LOCAL);
    if (!n->library)
        return err_set(e, ST_FAILED_PRECONDITION, "no NVIDIA driver: %s", dlerror());
    TRY(functions_find(n, library, e));
    if ((rc = n->nvmlInit_v2()) != 0)
        return err_set(e, ST_FAILED_PRECONDITION, "NVML does not start (code %d)", rc);
    n->started = true;
    if ((rc = n->nvmlDeviceGetCount_v2(&count)) != 0)
        return err_set(e, ST_FAILED_PRECONDITION, "NVML cannot count the GPUs (code %d)", rc);
    if (count == 0)
        return err_set(e, ST_FAILED_PRECONDITION, "the NVIDIA driver sees no GPU");
    TRY(part_take(n, (int)count, part, e));
    events_open(n);
    *ret = take_ptr(&n);
    return ST_OK;
}

int nvml_count(const struct nvml *n) { return n->count; }

/* A device that does not report its capability may be used: its first job will show whether it works. */
static void age_judge(const struct nvml *n, void *device, struct nvml_facts *ret) {
    int major = 0, minor = 0;
    if (!n->nvmlDeviceGetCudaComputeCapability || n->nvmlDeviceGetCudaComputeCapability(device, &major, &minor) != 0 ||
        10 * major + minor >= LIMIT_MIN_CUDA_CAPABILITY)
        return;
    snprintf(ret->reason, sizeof ret->reason, "too old: compute capability %d.%d, and jobs need %d.%d", major, minor,
             LIMIT_MIN_CUDA_CAPABILITY / 10, LIMIT_MIN_CUDA_CAPABILITY % 10);
}

void nvml_facts(const struct nvml *n, int device, struct nvml_facts *ret) {
    void *d = n->devices[device];
    struct memory memory = { 0 };
    struct pci pci = { .id = "" };
    int rc;
    *ret = (struct nvml_facts){ .index = n->first + device };
    if (!d) {
        snprintf(ret->reason, sizeof ret->reason, "the driver does not open it (NVML code %d)", n->refused[device]);
        return;
    }
    if (n->nvmlDeviceGetPciInfo_v3 && n->nvmlDeviceGetPciInfo_v3(d, &pci) == 0)
        snprintf(ret->pci_bus_id, sizeof ret->pci_bus_id, "%.31s", pci.id);
    if ((rc = n->nvmlDeviceGetUUID(d, ret->uuid, sizeof ret->uuid)) != 0) {
        *ret->uuid = '\0';
        snprintf(ret->reason, sizeof ret->reason, "the driver does not report its UUID (NVML code %d)", rc);
    }
    if ((rc = n->nvmlDeviceGetName(d, ret->model, sizeof ret->model)) != 0)
        *ret->model = '\0';
    if (rc == 0)
        rc = n->nvmlDeviceGetMemoryInfo(d, &memory);
    if (rc != 0)
        snprintf(ret->reason, sizeof ret->reason, "the driver does not describe it (NVML code %d)", rc);
    else if (!*ret->reason)
        age_judge(n, d, ret);
    ret->model[sizeof ret->model - 1] = ret->uuid[sizeof ret->uuid - 1] = '\0';
    ret->memory_bytes = (int64_t)memory.total;
}

/* Counts links to the peer itself, and to a switch, which reaches every device. */
static int nvlinks(const struct nvml *n, int from, int to) {
    struct nvml_facts peer;
    int links = 0;
    if (!n->nvmlDeviceGetNvLinkState)
        return 0;
    nvml_facts(n, to, &peer);
    for (unsigned link = 0; link < LINKS_MAX; link++) {
        int active = 0, type = 0;
        struct pci remote = { .id = "" };
        if (n->nvmlDeviceGetNvLinkState(n->devices[from], link, &active) != 0 || !active)
            continue;
        bool to_switch = n->nvmlDeviceGetNvLinkRemoteDeviceType &&
                         n->nvmlDeviceGetNvLinkRemoteDeviceType(n->devices[from], link, &type) == 0 &&
                         type == REMOTE_SWITCH;
        bool to_peer = n->nvmlDeviceGetNvLinkRemotePciInfo_v2 &&
                       n->nvmlDeviceGetNvLinkRemotePciInfo_v2(n->devices[from], link, &remote) == 0 &&
                       *peer.pci_bus_id && strcmp(remote.id, peer.pci_bus_id) == 0;
        links += to_switch || to_peer;
    }
    return links;
}

void nvml_link(const struct nvml *n, int from, int to, char ret[NVML_LINK_BYTES]) {
    static const char *const ancestors[] = { "PIX", "PIX", "PXB", "PHB", "NODE", "SYS" };
    bool both = n->devices[from] && n->devices[to];
    int level = 50, links = from == to || !both ? 0 : nvlinks(n, from, to);
    if (from == to)
        snprintf(ret, NVML_LINK_BYTES, "X");
    else if (links > 0)
        snprintf(ret, NVML_LINK_BYTES, "NV%d", links);
    else if (both && n->nvmlDeviceGetTopologyCommonAncestor &&
             n->nvmlDeviceGetTopologyCommonAncestor(n->devices[from], n->devices[to], &level) == 0 && level >= 0 &&
             level <= 50)
        snprintf(ret, NVML_LINK_BYTES, "%s", ancestors[level / 10]);
    else
        snprintf(ret, NVML_LINK_BYTES, "?");
}

static double ecc_errors(const struct nvml *n, void *device, int kind) {
    unsigned long long errors = 0;
    return n->nvmlDeviceGetTotalEccErrors && n->nvmlDeviceGetTotalEccErrors(device, kind, SINCE_LOAD, &errors) == 0
               ? (double)errors
               : NAN;
}

void nvml_sample(const struct nvml *n, int device, struct nvml_sample *ret) {
    void *d = n->devices[device];
    struct memory memory = { 0 };
    struct utilization utilization = { 0 };
    unsigned milliwatts = 0, celsius = 0;
    unsigned long long reasons = 0;
    *ret = (struct nvml_sample){ NAN, NAN, NAN, NAN, NAN, NAN, 0, false };
    if (!d)
        return;
    if (n->nvmlDeviceGetUtilizationRates && n->nvmlDeviceGetUtilizationRates(d, &utilization) == 0)
        ret->utilization = utilization.gpu / 100.0;
    int rc = n->nvmlDeviceGetMemoryInfo(d, &memory);
    if (rc == 0)
        ret->memory_bytes = (double)memory.used;
    ret->lost = rc == GPU_IS_LOST;
    if (n->nvmlDeviceGetPowerUsage && n->nvmlDeviceGetPowerUsage(d, &milliwatts) == 0)
        ret->power_watts = milliwatts / 1000.0;
    if (n->nvmlDeviceGetTemperature && n->nvmlDeviceGetTemperature(d, TEMPERATURE_GPU, &celsius) == 0)
        ret->temperature_celsius = celsius;
    ret->ecc_corrected = ecc_errors(n, d, ECC_CORRECTED);
    ret->ecc_uncorrected = ecc_errors(n, d, ECC_UNCORRECTED);
    int (*lower_clocks)(void *, unsigned long long *) = n->nvmlDeviceGetCurrentClocksEventReasons
                                                            ? n->nvmlDeviceGetCurrentClocksEventReasons
                                                            : n->nvmlDeviceGetCurrentClocksThrottleReasons;
    if (lower_clocks && lower_clocks(d, &reasons) == 0)
        ret->throttle_reasons = reasons;
}

/* The Xids that NVIDIA's own device plugin skips: a program causes them, not the device. */
static bool is_programs_own(unsigned long long xid) {
    static const unsigned long long own[] = { 13, 31, 43, 45, 68, 109 };
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (own[i] == xid)
            return true;
    return false;
}

bool nvml_wait_xid(struct nvml *n, int timeout_ms, int *ret_device, int *ret_xid) {
    struct event event = { 0 };
    int rc = n->events ? n->nvmlEventSetWait_v2(n->events, &event, (unsigned)timeout_ms) : NOT_SUPPORTED;
    if (rc != 0 && rc != TIMED_OUT)
        nanosleep(&(struct timespec){ timeout_ms / 1000, timeout_ms % 1000 * 1000000L }, NULL);
    if (rc != 0 || event.type != EVENT_XID || is_programs_own(event.data))
        return false;
    for (int i = 0; i < n->count; i++)
        if (n->devices[i] == event.device) {
            *ret_device = i;
            *ret_xid = (int)event.data;
            return true;
        }
    return false;
}
