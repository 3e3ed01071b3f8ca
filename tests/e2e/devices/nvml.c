/* Stands for NVIDIA's driver library. It answers what the file named by FAKE_NVML says, read anew at each call: lines
 * of
 *
 *     uncorrected DEVICE ERRORS      xid DEVICE NUMBER (told once)
 *     gone DEVICE 0                  is not listed: those after it have a lower index
 *     unopened DEVICE CODE           its handle is refused
 *     undescribed DEVICE CODE        its name is refused
 *     old DEVICE CAPABILITY          75: of compute capability 7.5, not 9.0
 *     idle DEVICE 0                  its utilization is 0
 *     unmeasured DEVICE CODE         its utilization is refused
 *     lost DEVICE 0                  its memory is refused as of a GPU that is lost
 *     grave DEVICE PID               Xid 79, told once, when there is no such process any more
 *
 * Two GPUs, joined by four NVLinks. A test in the same process may hold the driver (nvml_stand_in.h). */
#include "nvml_stand_in.h"

#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { DEVICES = 2, LINKS = 4, SUCCESS = 0, NOT_FOUND = 6, TIMED_OUT = 10, LOST = 15, EVENT_XID = 8 };

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

static int device_of[DEVICES] = { 0, 1 };
static int xids_told, graves_told;

static int index_of(const void *device) { return *(const int *)device; }

/* The number-th line that begins with the word: its two numbers. */
static int script(const char *word, int number, int *a, unsigned long long *b) {
    const char *path = getenv("FAKE_NVML");
    char said[64];
    int found = 0;
    FILE *f = path ? fopen(path, "r") : NULL;
    while (f && !found && fscanf(f, "%63s %d %llu", said, a, b) == 3)
        found = strcmp(said, word) == 0 && number-- == 0;
    if (f)
        fclose(f);
    return found;
}

/* The number of the word's line for this device; -1 without one. */
static long long told_of(const char *word, int device) {
    int of;
    unsigned long long number;
    for (int i = 0; script(word, i, &of, &number); i++)
        if (of == device)
            return (long long)number;
    return -1;
}

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards what follows */
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int held, inside, asked, ends;

static int read_count(const int *count) {
    pthread_mutex_lock(&lock);
    int n = *count;
    pthread_mutex_unlock(&lock);
    return n;
}

static void await_count(const int *count, int least) {
    pthread_mutex_lock(&lock);
    while (*count < least)
        pthread_cond_wait(&changed, &lock);
    pthread_mutex_unlock(&lock);
}

int nvml_stand_in_asked(void) { return read_count(&asked); }
int nvml_stand_in_ends(void) { return read_count(&ends); }
void nvml_stand_in_await_held(void) { await_count(&inside, 1); }
void nvml_stand_in_await_asked(int number) { await_count(&asked, number); }
void nvml_stand_in_await_ends(int number) { await_count(&ends, number); }

void nvml_stand_in_hold(int hold) {
    pthread_mutex_lock(&lock);
    held = hold;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
}

static void pass_driver(void) {
    pthread_mutex_lock(&lock);
    inside++;
    asked++;
    pthread_cond_broadcast(&changed);
    while (held)
        pthread_cond_wait(&changed, &lock);
    inside--;
    pthread_mutex_unlock(&lock);
}

int nvmlInit_v2(void);
int nvmlInit_v2(void) { return SUCCESS; }
int nvmlShutdown(void);
int nvmlShutdown(void) {
    pthread_mutex_lock(&lock);
    ends++;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return SUCCESS;
}
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = 0;
    for (int i = 0; i < DEVICES; i++)
        *count += told_of("gone", i) < 0;
    return SUCCESS;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    int i = 0;
    for (; i < DEVICES; i++)
        if (told_of("gone", i) < 0 && index-- == 0)
            break;
    if (i == DEVICES)
        return NOT_FOUND;
    long long refused = told_of("unopened", i);
    *device = refused < 0 ? &device_of[i] : NULL;
    return refused < 0 ? SUCCESS : (int)refused;
}
int nvmlDeviceGetName(void *device, char *name, unsigned n);
int nvmlDeviceGetName(void *device, char *name, unsigned n) {
    long long refused = told_of("undescribed", index_of(device));
    if (refused >= 0)
        return (int)refused;
    snprintf(name, n, "NVIDIA H200");
    return SUCCESS;
}
int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor);
int nvmlDeviceGetCudaComputeCapability(void *device, int *major, int *minor) {
    const long long told = told_of("old", index_of(device)), capability = told < 0 ? 90 : told;
    *major = (int)(capability / 10);
    *minor = (int)(capability % 10);
    return SUCCESS;
}
int nvmlDeviceGetUUID(void *device, char *uuid, unsigned n);
int nvmlDeviceGetUUID(void *device, char *uuid, unsigned n) {
    const char *host = getenv("FAKE_NVML_HOST");
    snprintf(uuid, n, "GPU-%s-%d", host ? host : "host", index_of(device));
    return SUCCESS;
}
int nvmlDeviceGetPciInfo_v3(void *device, struct pci *pci);
int nvmlDeviceGetPciInfo_v3(void *device, struct pci *pci) {
    snprintf(pci->id, sizeof pci->id, "00000000:%02X:00.0", 0x18 + index_of(device));
    return SUCCESS;
}
int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory);
int nvmlDeviceGetMemoryInfo(void *device, struct memory *memory) {
    pass_driver();
    if (told_of("lost", index_of(device)) >= 0)
        return LOST;
    *memory = (struct memory){ .total = 150754820096ULL, .used = 1ULL << 30, .free = 150754820096ULL - (1ULL << 30) };
    return SUCCESS;
}
int nvmlDeviceGetUtilizationRates(void *device, struct utilization *u);
int nvmlDeviceGetUtilizationRates(void *device, struct utilization *u) {
    const bool idle = told_of("idle", index_of(device)) >= 0;
    const long long refused = told_of("unmeasured", index_of(device));
    if (refused >= 0)
        return (int)refused;
    *u = (struct utilization){ .gpu = idle ? 0 : 75u + (unsigned)index_of(device) };
    return SUCCESS;
}
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts);
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) {
    (void)device;
    *milliwatts = 612500;
    return SUCCESS;
}
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius);
int nvmlDeviceGetTemperature(void *device, int sensor, unsigned *celsius) {
    (void)device;
    *celsius = 64;
    return sensor == 0 ? SUCCESS : NOT_FOUND;
}
int nvmlDeviceGetTotalEccErrors(void *device, int kind, int counter, unsigned long long *errors);
int nvmlDeviceGetTotalEccErrors(void *device, int kind, int counter, unsigned long long *errors) {
    (void)counter;
    long long told = kind == 1 ? told_of("uncorrected", index_of(device)) : 0;
    *errors = told > 0 ? (unsigned long long)told : 0;
    return SUCCESS;
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons);
int nvmlDeviceGetCurrentClocksThrottleReasons(void *device, unsigned long long *reasons) {
    (void)device;
    *reasons = 4; /* held back by its power limit */
    return SUCCESS;
}
int nvmlDeviceGetNvLinkState(void *device, unsigned link, int *active);
int nvmlDeviceGetNvLinkState(void *device, unsigned link, int *active) {
    (void)device;
    *active = link < LINKS;
    return SUCCESS;
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned link, struct pci *pci);
int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned link, struct pci *pci) {
    (void)link;
    return nvmlDeviceGetPciInfo_v3(&device_of[1 - index_of(device)], pci);
}
int nvmlEventSetCreate(void **set);
int nvmlEventSetCreate(void **set) {
    *set = device_of;
    return SUCCESS;
}
int nvmlEventSetFree(void *set);
int nvmlEventSetFree(void *set) { return set ? SUCCESS : NOT_FOUND; }
int nvmlDeviceRegisterEvents(void *device, unsigned long long types, void *set);
int nvmlDeviceRegisterEvents(void *device, unsigned long long types, void *set) {
    return device && set && types == EVENT_XID ? SUCCESS : NOT_FOUND;
}
int nvmlEventSetWait_v2(void *set, struct event *event, unsigned timeout_ms);
int nvmlEventSetWait_v2(void *set, struct event *event, unsigned timeout_ms) {
    int of;
    unsigned long long xid;
    (void)set;
    if (script("xid", xids_told, &of, &xid)) {
        xids_told++;
        *event = (struct event){ .device = &device_of[of], .type = EVENT_XID, .data = xid };
        return SUCCESS;
    }
    if (script("grave", graves_told, &of, &xid) && kill((pid_t)xid, 0) != 0) {
        graves_told++;
        *event = (struct event){ .device = &device_of[of], .type = EVENT_XID, .data = 79 };
        return SUCCESS;
    }
    nanosleep(&(struct timespec){ .tv_nsec = (long)timeout_ms % 1000 * 1000000L }, NULL);
    return TIMED_OUT;
}
