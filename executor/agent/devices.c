#include "executor/agent/devices.h"

#include "base/log.h"
#include "executor/agent/attach.h"
#include "executor/agent/attempts.h"
#include "executor/agent/claim.h"
#include "executor/agent/monitor.h"
#include "executor/agent/quarantine.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REASON_BYTES = 160 };

/* What a row has, and how the samples of a step become one value. */
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
    bool taken;
    int claim;                 /* -1: none */
    char reason[REASON_BYTES]; /* "" = healthy */
    int64_t look;              /* the monitor's that is awaited; 0: none */
    int64_t step;              /* the last one that has a row */
    double sum[VALUES];
    int samples[VALUES];
    uint64_t throttle;
    Trainyard__V1__Device message;
    char *links[INVENTORY_DEVICES_MOST];
};

struct devices {
    struct agent *agent;
    struct monitor *monitor;
    int n;
    struct device items[INVENTORY_DEVICES_MOST];
    Trainyard__V1__Device *messages[INVENTORY_DEVICES_MOST];
};

const char *devices_uuid(const struct devices *d, int device) { return d->agent->inventory.devices[device].uuid; }

int devices_index(const struct devices *d, int device) {
    return device == DEVICE_NONE ? DEVICE_NONE : d->agent->inventory.devices[device].index;
}

const char *devices_reason(const struct devices *d, int device) {
    return *d->items[device].reason ? d->items[device].reason : NULL;
}

size_t devices_list(struct devices *d, Trainyard__V1__Device ***ret) {
    *ret = d->messages;
    return (size_t)d->n;
}

status_t devices_take(struct devices *d, int *ret_device, struct err *e) {
    int ill = 0;
    for (int i = 0; i < d->n; i++) {
        struct device *x = &d->items[i];
        ill += *x->reason != '\0';
        if (x->taken || *x->reason)
            continue;
        x->taken = true;
        x->step = 0;
        memset(x->sum, 0, sizeof x->sum);
        memset(x->samples, 0, sizeof x->samples);
        x->throttle = 0;
        *ret_device = i;
        return ST_OK;
    }
    return err_set(e, ST_RESOURCE_EXHAUSTED, "none of this host's %d GPUs is free, %d are quarantined", d->n, ill);
}

void devices_release(struct devices *d, int device) {
    if (device != DEVICE_NONE)
        d->items[device].taken = false;
}

/* ---- quarantine ---- */

static void message_update(struct devices *d, int device) {
    struct device *x = &d->items[device];
    x->message.state = *x->reason ? TRAINYARD__V1__DEVICE__STATE__QUARANTINED : TRAINYARD__V1__DEVICE__STATE__HEALTHY;
    x->message.reason = x->reason;
}

static void tell_changed(struct devices *d) {
    Trainyard__V1__DevicesChanged changed = TRAINYARD__V1__DEVICES_CHANGED__INIT;
    changed.devices = d->messages;
    changed.n_devices = (size_t)d->n;
    Trainyard__V1__AgentMessage m = TRAINYARD__V1__AGENT_MESSAGE__INIT;
    m.message_case = TRAINYARD__V1__AGENT_MESSAGE__MESSAGE_DEVICES_CHANGED;
    m.devices_changed = &changed;
    attach_send(d->agent->attach, &m); /* without a stream the next hello says it */
}

static void quarantine(struct devices *d, int device) {
    struct device *x = &d->items[device];
    struct err why;
    log_event(LOG_ERROR, "device_quarantined", "device", LOG_INT(devices_index(d, device)), "uuid",
              LOG_STR(devices_uuid(d, device)), "reason", LOG_STR(x->reason), NULL);
    message_update(d, device);
    if (quarantine_add(directory_path(d->agent->directory), devices_uuid(d, device), x->reason, &why) != ST_OK)
        log_event(LOG_ERROR, "quarantine_not_kept", "message", LOG_STR(why.msg), NULL); /* it ends with this program */
    tell_changed(d);
    attempts_device_lost(d->agent->attempts, device, x->reason);
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
    attempts_device_sample(d->agent->attempts, device, &row);
    x->step = step;
    memset(x->sum, 0, sizeof x->sum);
    memset(x->samples, 0, sizeof x->samples);
    x->throttle = 0;
}

static void sample_take(struct devices *d, int device, const struct nvml_sample *s) {
    struct device *x = &d->items[device];
    if (!x->taken)
        return;
    x->throttle |= s->throttle_reasons;
    sample_add(x, UTILIZATION, s->utilization);
    sample_add(x, MEMORY, s->memory_bytes);
    sample_add(x, POWER, s->power_watts);
    sample_add(x, TEMPERATURE, s->temperature_celsius);
    sample_add(x, ECC_CORRECTED, s->ecc_corrected);
    sample_add(x, ECC_UNCORRECTED, s->ecc_uncorrected);
    sample_add(x, THROTTLE, (double)x->throttle);
    int64_t step = attempts_device_step(d->agent->attempts, device);
    if (step > x->step)
        row_send(d, device, step);
}

/* What a reading says of a device that is ill; "" = nothing. */
static void illness_of(const struct monitor_reading *r, char ret[REASON_BYTES]) {
    double errors = r->sample.ecc_uncorrected;
    *ret = '\0';
    if (r->kind == MONITOR_XID)
        snprintf(ret, REASON_BYTES, "Xid %d", r->xid);
    else if (r->sample.lost)
        snprintf(ret, REASON_BYTES, "the driver cannot reach it any more");
    else if (errors > 0)
        snprintf(ret, REASON_BYTES, "%.0f uncorrected memory error%s since its driver was loaded", errors,
                 errors == 1 ? "" : "s");
}

static void looked(struct devices *d, int64_t look) {
    for (int i = 0; i < d->n; i++)
        if (d->items[i].look && d->items[i].look <= look) {
            d->items[i].look = 0;
            attempts_device_looked(d->agent->attempts, i);
        }
}

static void on_reading(void *ctx, const struct monitor_reading *r) {
    struct devices *d = ctx;
    struct device *x = &d->items[r->device];
    if (r->kind == MONITOR_LOOKED) {
        looked(d, r->look);
        return;
    }
    if (*x->reason)
        return;
    illness_of(r, x->reason);
    if (*x->reason)
        quarantine(d, r->device);
    else
        sample_take(d, r->device, &r->sample);
}

void devices_look(struct devices *d, int device) { d->items[device].look = monitor_look(d->monitor); }

/* ---- open and close ---- */

/* Also of an ill one, so that no other executor offers it. */
static status_t device_claim(struct devices *d, int device, struct err *e) {
    struct device *x = &d->items[device];
    struct err why = { "" };
    if (!*devices_uuid(d, device))
        return ST_OK;
    const status_t st = claim_take(devices_uuid(d, device), &x->claim, &why);
    if (st == ST_ALREADY_EXISTS && !*x->reason)
        snprintf(x->reason, REASON_BYTES, "%.*s", REASON_BYTES - 1, why.msg);
    return st == ST_OK || st == ST_ALREADY_EXISTS ? ST_OK : err_set(e, st, "%s", why.msg);
}

/* Why a device gets no rank, from the start on. */
static status_t reasons_find(struct devices *d, struct err *e) {
    struct bytes text;
    status_t st = quarantine_read(directory_path(d->agent->directory), &text, e);
    for (int i = 0; i < d->n && st == ST_OK; i++) {
        if (!quarantine_find(&text, devices_uuid(d, i), d->items[i].reason, REASON_BYTES))
            snprintf(d->items[i].reason, REASON_BYTES, "%s", d->agent->inventory.devices[i].reason);
        st = device_claim(d, i, e);
    }
    bytes_done(&text);
    return st;
}

static void message_fill(struct devices *d, int device) {
    struct inventory_device *from = &d->agent->inventory.devices[device];
    struct device *x = &d->items[device];
    Trainyard__V1__Device *m = d->messages[device] = &x->message;
    trainyard__v1__device__init(m);
    m->kind = (char *)(uintptr_t) "cuda";
    m->index = from->index;
    m->model = from->model;
    m->memory_bytes = from->memory_bytes;
    m->uuid = from->uuid;
    m->pci_bus_id = from->pci_bus_id;
    m->links = x->links;
    m->n_links = (size_t)d->n;
    for (int i = 0; i < d->n; i++)
        x->links[i] = from->links[i];
    message_update(d, device);
}

status_t devices_open(struct agent *agent, struct devices **ret, struct err *e) {
    CLEANUP(devices_closep) struct devices *d = calloc(1, sizeof *d);
    if (!d)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for this host's devices");
    d->agent = agent;
    d->n = agent->inventory.n_devices;
    for (int i = 0; i < d->n; i++)
        d->items[i].claim = -1;
    TRY(reasons_find(d, e));
    for (int i = 0; i < d->n; i++)
        message_fill(d, i);
    if (d->n > 0)
        TRY(monitor_open(agent->loop, take_ptr(&agent->nvml), on_reading, d, &d->monitor, e));
    *ret = take_ptr(&d);
    return ST_OK;
}

struct devices *devices_close(struct devices *d) {
    if (!d)
        return NULL;
    d->monitor = monitor_close(d->monitor);
    for (int i = 0; i < d->n; i++)
        closep(&d->items[i].claim);
    free(d);
    return NULL;
}
