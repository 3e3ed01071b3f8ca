/* GPUs: from the monitor's readings to metrics of ranks and to unhealthy devices.
 *
 * A reading is one sample of a device, or an Xid. If it shows that the device is unhealthy, the owner decides; if not,
 * its values are accumulated until the device's rank reports a newer step. They become one row of metrics for that
 * step: averages, or the newest value of counters. devices_inspect asks the monitor for readings now; the monitor's
 * answer follows those readings in the loop, so `inspected` comes after `unhealthy`. */
#include "executor/agent/devices.h"

#include "base/alloc.h"
#include "base/log.h"
#include "executor/agent/device_claim.h"
#include "executor/agent/device_monitor.h"
#include "executor/agent/quarantine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REASON_BYTES = 160 };

/* The values of a row, and how the samples of a step become one value. */
enum value { UTILIZATION, MEMORY, POWER, TEMPERATURE, ECC_CORRECTED, ECC_UNCORRECTED, THROTTLE, VALUES };
static const struct {
    const char *name;
    bool newest; /* else the average */
} VALUE[VALUES] = {
    [UTILIZATION] = { "device_utilization", false },    [MEMORY] = { "device_memory_bytes", false },
    [POWER] = { "device_power_watts", false },          [TEMPERATURE] = { "device_temperature_celsius", false },
    [ECC_CORRECTED] = { "device_ecc_corrected", true }, [ECC_UNCORRECTED] = { "device_ecc_uncorrected", true },
    [THROTTLE] = { "device_throttle_reasons", true },
};

struct device {
    int claim;                 /* -1: none */
    char reason[REASON_BYTES]; /* why it gets no rank; "" = healthy */
    int64_t inspection;        /* the number of the monitor's inspection that is awaited; 0: none */
    int64_t step;              /* the last step that has a row */
    double sum[VALUES];
    int samples[VALUES];
    uint64_t throttle;
    struct nvml_sample newest;
    Trainyard__V1__Device message;
    char *links[INVENTORY_DEVICES_MAX];
};

struct devices {
    const struct host *host;
    struct devices_owner owner;
    struct device_monitor *monitor;
    int n;
    struct device items[INVENTORY_DEVICES_MAX];
    Trainyard__V1__Device *messages[INVENTORY_DEVICES_MAX];
};

const char *devices_uuid(const struct devices *d, int device) { return d->host->inventory.devices[device].uuid; }

int devices_index(const struct devices *d, int device) { return d->host->inventory.devices[device].index; }
const char *devices_reason(const struct devices *d, int device) { return d->items[device].reason; }

const struct nvml_sample *devices_sample(const struct devices *d, int device) { return &d->items[device].newest; }
int devices_count(const struct devices *d) { return d->n; }

size_t devices_list(struct devices *d, Trainyard__V1__Device ***ret) {
    *ret = d->messages;
    return (size_t)d->n;
}

static void samples_clear(struct device *x) {
    memset(x->sum, 0, sizeof x->sum);
    memset(x->samples, 0, sizeof x->samples);
    x->throttle = 0;
}

void devices_rank_starts(struct devices *d, int device) {
    d->items[device].step = 0;
    samples_clear(&d->items[device]);
}

/* ---- quarantine ---- */

static void message_update(struct devices *d, int device) {
    struct device *x = &d->items[device];
    x->message.state = *x->reason ? TRAINYARD__V1__DEVICE__STATE__QUARANTINED : TRAINYARD__V1__DEVICE__STATE__HEALTHY;
    x->message.reason = x->reason;
}

void devices_quarantine(struct devices *d, int device, const char *reason) {
    struct device *x = &d->items[device];
    struct err why;
    snprintf(x->reason, sizeof x->reason, "%s", reason);
    log_event(LOG_ERROR, "device_quarantined", "device", LOG_INT(devices_index(d, device)), "uuid",
              LOG_STR(devices_uuid(d, device)), "reason", LOG_STR(x->reason), NULL);
    message_update(d, device);
    /* If the quarantine cannot be written, it ends with this process. */
    if (quarantine_add(directory_path(d->host->directory), devices_uuid(d, device), x->reason, &why) != ST_OK)
        log_event(LOG_ERROR, "quarantine_not_kept", "message", LOG_STR(why.msg), NULL);
}

/* ---- samples ---- */

static void sample_add(struct device *x, enum value value, double reading) {
    if (isnan(reading))
        return;
    bool newest = VALUE[value].newest;
    x->sum[value] = newest ? reading : x->sum[value] + reading;
    x->samples[value] = newest ? 1 : x->samples[value] + 1;
}

static void row_send(struct devices *d, int device, int64_t step) {
    struct device *x = &d->items[device];
    char *names[VALUES];
    double values[VALUES];
    size_t n = 0;
    for (int v = 0; v < VALUES; v++)
        if (x->samples[v] > 0) {
            names[n] = (char *)(uintptr_t)VALUE[v].name;
            values[n++] = x->sum[v] / x->samples[v];
        }
    Trainyard__V1__MetricRow row = TRAINYARD__V1__METRIC_ROW__INIT;
    row.step = step;
    row.names = names;
    row.n_names = n;
    row.values = values;
    row.n_values = n;
    row.per_rank = true;
    d->owner.sample(d->owner.ctx, device, &row);
    x->step = step;
    samples_clear(x);
}

static void sample_take(struct devices *d, int device, const struct nvml_sample *s) {
    struct device *x = &d->items[device];
    const int64_t step = d->owner.rank_step(d->owner.ctx, device);
    x->throttle |= s->throttle_reasons;
    sample_add(x, UTILIZATION, s->utilization);
    sample_add(x, MEMORY, s->memory_bytes);
    sample_add(x, POWER, s->power_watts);
    sample_add(x, TEMPERATURE, s->temperature_celsius);
    sample_add(x, ECC_CORRECTED, s->ecc_corrected);
    sample_add(x, ECC_UNCORRECTED, s->ecc_uncorrected);
    sample_add(x, THROTTLE, (double)x->throttle);
    if (step > x->step)
        row_send(d, device, step);
}

/* The reason why the device of a reading is unhealthy; "": the reading shows no reason. */
static void unhealthy_reason(const struct device_monitor_reading *r, char ret[REASON_BYTES]) {
    double errors = r->sample.ecc_uncorrected;
    *ret = '\0';
    if (r->kind == DEVICE_MONITOR_XID)
        snprintf(ret, REASON_BYTES, "Xid %d", r->xid);
    else if (r->sample.lost)
        snprintf(ret, REASON_BYTES, "the driver cannot reach it any more");
    else if (errors > 0)
        snprintf(ret, REASON_BYTES, "%.0f uncorrected memory error%s since its driver was loaded", errors,
                 errors == 1 ? "" : "s");
}

static void inspected(struct devices *d, int64_t inspection) {
    for (int i = 0; i < d->n; i++)
        if (d->items[i].inspection && d->items[i].inspection <= inspection) {
            d->items[i].inspection = 0;
            d->owner.inspected(d->owner.ctx, i);
        }
}

static void on_reading(void *ctx, const struct device_monitor_reading *r) {
    struct devices *d = ctx;
    struct device *x = &d->items[r->device];
    if (r->kind == DEVICE_MONITOR_INSPECTED) {
        inspected(d, r->inspection);
        return;
    }
    char reason[REASON_BYTES];
    if (r->kind == DEVICE_MONITOR_SAMPLE)
        x->newest = r->sample;
    if (*x->reason)
        return;
    unhealthy_reason(r, reason);
    if (*reason)
        d->owner.unhealthy(d->owner.ctx, r->device, reason);
    else
        sample_take(d, r->device, &r->sample);
}

void devices_inspect(struct devices *d, int device) {
    d->items[device].inspection = device_monitor_inspect(d->monitor);
}

/* ---- open and close ---- */

/* Claims unhealthy devices too, so that no other executor offers them. */
static status_t device_claim(struct devices *d, int device, struct err *e) {
    struct device *x = &d->items[device];
    struct err why = { "" };
    if (!*devices_uuid(d, device))
        return ST_OK;
    const status_t st = device_claim_take(devices_uuid(d, device), &x->claim, &why);
    if (st == ST_ALREADY_EXISTS && !*x->reason)
        snprintf(x->reason, REASON_BYTES, "%.*s", REASON_BYTES - 1, why.msg);
    return st == ST_OK || st == ST_ALREADY_EXISTS ? ST_OK : err_set(e, st, "%s", why.msg);
}

/* The reasons why devices get no rank from the start: quarantine, inventory, another executor's claim. */
static status_t reasons_find(struct devices *d, struct err *e) {
    struct bytes text;
    status_t st = quarantine_read(directory_path(d->host->directory), &text, e);
    for (int i = 0; i < d->n && st == ST_OK; i++) {
        if (!quarantine_find(&text, devices_uuid(d, i), d->items[i].reason, REASON_BYTES))
            snprintf(d->items[i].reason, REASON_BYTES, "%s", d->host->inventory.devices[i].reason);
        st = device_claim(d, i, e);
    }
    bytes_done(&text);
    return st;
}

static void message_fill(struct devices *d, int device) {
    const struct inventory_device *from = &d->host->inventory.devices[device];
    struct device *x = &d->items[device];
    Trainyard__V1__Device *m = d->messages[device] = &x->message;
    trainyard__v1__device__init(m);
    m->kind = (char *)(uintptr_t) "cuda";
    m->index = from->index;
    m->model = (char *)(uintptr_t)from->model;
    m->memory_bytes = from->memory_bytes;
    m->uuid = (char *)(uintptr_t)from->uuid;
    m->pci_bus_id = (char *)(uintptr_t)from->pci_bus_id;
    m->links = x->links;
    m->n_links = (size_t)d->n;
    for (int i = 0; i < d->n; i++)
        x->links[i] = (char *)(uintptr_t)from->links[i];
    message_update(d, device);
}

status_t devices_open(const struct host *host, struct nvml **nvml, const struct devices_owner *owner,
                      struct devices **ret, struct err *e) {
    CLEANUP(devices_closep) struct devices *d = alloc_zeroed(1, sizeof *d);
    d->host = host;
    d->owner = *owner;
    d->n = host->inventory.n_devices;
    for (int i = 0; i < d->n; i++) {
        d->items[i].claim = -1;
        d->items[i].newest = (struct nvml_sample){
            .utilization = NAN, .memory_bytes = NAN, .power_watts = NAN, .temperature_celsius = NAN
        };
    }
    TRY(reasons_find(d, e));
    for (int i = 0; i < d->n; i++)
        message_fill(d, i);
    if (d->n > 0)
        TRY(device_monitor_open(host->loop, take_ptr(nvml), on_reading, d, &d->monitor, e));
    *ret = take_ptr(&d);
    return ST_OK;
}

struct devices *devices_close(struct devices *d) {
    if (!d)
        return NULL;
    d->monitor = device_monitor_close(d->monitor);
    for (int i = 0; i < d->n; i++)
        closep(&d->items[i].claim);
    free(d);
    return NULL;
}
