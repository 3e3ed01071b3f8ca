/* NVIDIA's management library, loaded at run time with the project's own prototypes, so that this program builds and
 * runs on hosts without the library.
 *
 *     TRY(nvml_open("libnvidia-ml.so.1", part, &nvml, e)); // FAILED_PRECONDITION: one sentence why there are no GPUs
 *     for (int i = 0; i < nvml_count(nvml); i++)
 *         nvml_facts(nvml, i, &facts);
 *
 * A device's number is its place in the list of this opening; the next opening may give it another number. The UUID of
 * a device never changes.
 *
 * Calls ask the driver and take milliseconds, or much longer for a failing device. Do not make them from the loop's
 * thread, except at the start. One thread at a time. */
#ifndef EXECUTOR_AGENT_NVML_H
#define EXECUTOR_AGENT_NVML_H

#include "base/cleanup.h"
#include "base/status.h"

#include <stdbool.h>
#include <stdint.h>

enum { NVML_DEVICES_MAX = 64, NVML_LINK_BYTES = 16 };

struct nvml;

/* One of `of` equal parts of the driver's list of GPUs, counted from 1; the first parts take the remainder. `of` 0:
 * all.
 */
struct nvml_part {
    int number, of; /* 1 .. of */
};

MUST_CHECK status_t nvml_open(const char *library, struct nvml_part part, struct nvml **ret, struct err *e);
struct nvml *nvml_close(struct nvml *n);
CLEANUP_DEFINE(struct nvml *, nvml_close)

int nvml_count(const struct nvml *n); /* 1 .. NVML_DEVICES_MAX */

/* A fact that the driver does not report is "" or 0. A device that is too old, or without model, memory or UUID, cannot
 * be used: reason is why ("the driver does not describe it (NVML code 999)"), else "". */
struct nvml_facts {
    int index; /* in the driver's list */
    char model[96], uuid[96], pci_bus_id[32], reason[96];
    int64_t memory_bytes;
};
void nvml_facts(const struct nvml *n, int device, struct nvml_facts *ret);

/* How one device reaches another, as executor.proto's Device.links names it. */
void nvml_link(const struct nvml *n, int from, int to, char ret[NVML_LINK_BYTES]);

/* A value that the driver does not report is NAN. */
struct nvml_sample {
    double utilization; /* 0 .. 1: the share of time in which a kernel ran */
    double memory_bytes, power_watts, temperature_celsius;
    double ecc_corrected, ecc_uncorrected; /* since the driver was loaded */
    uint64_t throttle_reasons;             /* NVML's bits of the reasons for lower clocks; 0: none */
    bool lost;                             /* the driver cannot reach it any more */
};
void nvml_sample(const struct nvml *n, int device, struct nvml_sample *ret);

/* Waits at most timeout_ms for an Xid of any device: true, its device and number. Skips Xids that a program's own
 * mistake causes. */
bool nvml_wait_xid(struct nvml *n, int timeout_ms, int *ret_device, int *ret_xid);

#endif
