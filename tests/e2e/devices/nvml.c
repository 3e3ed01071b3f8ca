/* Stands for NVIDIA's driver library. It answers what the file named by FAKE_NVML says, read anew at each call: lines
 * of
 *
 *     uncorrected DEVICE ERRORS      xid DEVICE NUMBER (told once)
 *
 * Two GPUs, joined by four NVLinks. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { DEVICES = 2, LINKS = 4, SUCCESS = 0, NOT_FOUND = 6, TIMED_OUT = 10, EVENT_XID = 8 };

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
static int xids_told;

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

int nvmlInit_v2(void);
int nvmlInit_v2(void) { return SUCCESS; }
int nvmlShutdown(void);
int nvmlShutdown(void) { return SUCCESS; }
int nvmlDeviceGetCount_v2(unsigned *count);
int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = DEVICES;
    return SUCCESS;
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device);
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    *device = &device_of[index];
    return SUCCESS;
}
int nvmlDeviceGetName(void *device, char *name, unsigned n);
int nvmlDeviceGetName(void *device, char *name, unsigned n) {
    (void)device;
    snprintf(name, n, "NVIDIA H200");
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
    (void)device;
    *memory = (struct memory){ .total = 150754820096ULL, .used = 1ULL << 30, .free = 150754820096ULL - (1ULL << 30) };
    return SUCCESS;
}
int nvmlDeviceGetUtilizationRates(void *device, struct utilization *u);
int nvmlDeviceGetUtilizationRates(void *device, struct utilization *u) {
    *u = (struct utilization){ .gpu = 75u + (unsigned)index_of(device) };
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
    *errors = 0;
    int of;
    unsigned long long count;
    for (int i = 0; kind == 1 && script("uncorrected", i, &of, &count); i++)
        if (of == index_of(device))
            *errors = count;
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
    nanosleep(&(struct timespec){ .tv_nsec = (long)timeout_ms % 1000 * 1000000L }, NULL);
    return TIMED_OUT;
}
