/* NVIDIA's management library, loaded at run time with prototypes of our own, so that this program is built and runs
 * where there is none.
 *
 *     TRY(nvml_open("libnvidia-ml.so.1", &nvml, e));     // FAILED_PRECONDITION: one sentence why there are no GPUs
 *     for (int i = 0; i < nvml_count(nvml); i++)
 *         if (nvml_facts(nvml, i, &facts)) ...
 *
 * Calls ask the driver and may take milliseconds; of an ill device, much longer. Not for the loop's thread, but at the
 * start. One thread at a time. */
#ifndef EXECUTOR_AGENT_NVML_H
#define EXECUTOR_AGENT_NVML_H

#include "base/cleanup.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { NVML_DEVICES_MOST = 64, NVML_LINK_BYTES = 16 };

struct nvml;

MUST_CHECK status_t nvml_open(const char *library, struct nvml **ret, struct err *e);
struct nvml *nvml_close(struct nvml *n);
CLEANUP_DEFINE(struct nvml *, nvml_close)

int nvml_count(const struct nvml *n); /* 1 .. NVML_DEVICES_MOST */

struct nvml_facts {
    char model[96], uuid[96], pci_bus_id[32];
    int64_t memory_bytes;
};
/* False when the driver does not describe it. */
bool nvml_facts(const struct nvml *n, int device, struct nvml_facts *ret);

/* How one device reaches another, as executor.proto's Device.links names it. */
void nvml_link(const struct nvml *n, int from, int to, char ret[NVML_LINK_BYTES]);

/* What is not told is NAN. */
struct nvml_sample {
    double utilization; /* 0 .. 1: the share of time in which a kernel ran */
    double memory_bytes, power_watts, temperature_celsius;
    double ecc_corrected, ecc_uncorrected; /* since the driver was loaded */
    uint64_t throttle_reasons;             /* NVML's bits of what holds the clocks back; 0: nothing */
};
void nvml_sample(const struct nvml *n, int device, struct nvml_sample *ret);

/* Waits for an Xid of any device, at most timeout_ms: true, its device and number. Those that a program's own mistake
 * makes are passed over. */
bool nvml_wait_xid(struct nvml *n, int timeout_ms, int *ret_device, int *ret_xid);

#endif
