/* NVIDIA's management library, loaded at run time with prototypes of our own, so that this program is built and runs
 * where there is none.
 *
 *     TRY(nvml_open("libnvidia-ml.so.1", part, &nvml, e)); // FAILED_PRECONDITION: one sentence why there are no GPUs
 *     for (int i = 0; i < nvml_count(nvml); i++)
 *         nvml_facts(nvml, i, &facts);
 *
 * A device's number is its place in this opening: it may have another in the next one. Its UUID names it for good.
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

/* Of the GPUs that the driver lists, the number-th of so many parts, as equal as can be, the first ones not smaller
 * than the others; all of them where `of` is 0. */
struct nvml_part {
    int number, of; /* 1 .. of */
};

MUST_CHECK status_t nvml_open(const char *library, struct nvml_part part, struct nvml **ret, struct err *e);
struct nvml *nvml_close(struct nvml *n);
CLEANUP_DEFINE(struct nvml *, nvml_close)

int nvml_count(const struct nvml *n); /* 1 .. NVML_DEVICES_MOST */

/* What the driver does not tell is "" or 0. A device without model, memory or UUID cannot be used, nor one that is too
 * old: reason is why, in part of a sentence ("the driver does not describe it (NVML code 999)"), else "". */
struct nvml_facts {
    int index; /* among all that the driver lists */
    char model[96], uuid[96], pci_bus_id[32], reason[96];
    int64_t memory_bytes;
};
void nvml_facts(const struct nvml *n, int device, struct nvml_facts *ret);

/* How one device reaches another, as executor.proto's Device.links names it. */
void nvml_link(const struct nvml *n, int from, int to, char ret[NVML_LINK_BYTES]);

/* What is not told is NAN. */
struct nvml_sample {
    double utilization; /* 0 .. 1: the share of time in which a kernel ran */
    double memory_bytes, power_watts, temperature_celsius;
    double ecc_corrected, ecc_uncorrected; /* since the driver was loaded */
    uint64_t throttle_reasons;             /* NVML's bits of what holds the clocks back; 0: nothing */
    bool lost;                             /* the driver cannot reach it any more */
};
void nvml_sample(const struct nvml *n, int device, struct nvml_sample *ret);

/* Waits for an Xid of any device, at most timeout_ms: true, its device and number. Those that a program's own mistake
 * makes are passed over. */
bool nvml_wait_xid(struct nvml *n, int timeout_ms, int *ret_device, int *ret_xid);

#endif
