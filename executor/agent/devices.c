#include "executor/agent/devices.h"

#include "base/file.h"
#include "base/log.h"
#include "executor/agent/attach.h"
#include "executor/agent/attempts.h"
#include "executor/agent/monitor.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REASON_BYTES = 160, QUARANTINE_MOST_BYTES = 64 << 10 };

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
    char reason[REASON_BYTES]; /* "" = healthy */
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

static status_t quarantine_path(const struct devices *d, char *ret, struct err *e) {
    return snprintf(ret, PATH_MAX, "%s/quarantine", directory_path(d->agent->directory)) < PATH_MAX
               ? ST_OK
               : err_set(e, ST_INVALID_ARGUMENT, "--directory: the path is too long");
}

/* Lines of `UUID reason`. */
static void quarantine_read(struct devices *d) {
    char path[PATH_MAX];
    struct bytes text;
    bytes_init(&text, QUARANTINE_MOST_BYTES);
    if (quarantine_path(d, path, NULL) == ST_OK && file_read(path, &text, NULL) == ST_OK && text.len > 0) {
        char *rest = text.data;
        for (char *line; (line = strsep(&rest, "\n"));)
            for (int i = 0; i < d->n; i++) {
                const char *uuid = devices_uuid(d, i);
                size_t n = strlen(uuid);
                if (n && strncmp(line, uuid, n) == 0 && line[n] == ' ')
                    snprintf(d->items[i].reason, REASON_BYTES, "%s", line + n + 1);
            }
    }
    bytes_done(&text);
}

static void quarantine_write(const struct devices *d) {
    char path[PATH_MAX];
    struct bytes text;
    struct err why;
    bytes_init(&text, QUARANTINE_MOST_BYTES);
    status_t st = quarantine_path(d, path, &why);
    for (int i = 0; i < d->n && st == ST_OK; i++)
        if (*d->items[i].reason)
            st = bytes_printf(&text, &why, "%s %s\n", devices_uuid(d, i), d->items[i].reason);
    if (st == ST_OK)
        st = file_write_atomic(path, text.data, text.len, 0644, &why);
    if (st != ST_OK) /* it holds until this program's next start */
        log_event(LOG_ERROR, "quarantine_not_kept", "message", LOG_STR(why.msg), NULL);
    bytes_done(&text);
}

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
    log_event(LOG_ERROR, "device_quarantined", "device", LOG_INT(device), "uuid", LOG_STR(devices_uuid(d, device)),
              "reason", LOG_STR(x->reason), NULL);
    message_update(d, device);
    quarantine_write(d);
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

static void on_reading(void *ctx, const struct monitor_reading *r) {
    struct devices *d = ctx;
    struct device *x = &d->items[r->device];
    if (*x->reason)
        return;
    if (r->xid)
        snprintf(x->reason, sizeof x->reason, "Xid %d", r->xid);
    else if (r->sample.ecc_uncorrected > 0)
        snprintf(x->reason, sizeof x->reason, "%.0f uncorrected memory error%s since its driver was loaded",
                 r->sample.ecc_uncorrected, r->sample.ecc_uncorrected == 1 ? "" : "s");
    if (*x->reason)
        quarantine(d, r->device);
    else
        sample_take(d, r->device, &r->sample);
}

/* ---- open and close ---- */

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
    quarantine_read(d);
    for (int i = 0; i < d->n; i++)
        message_fill(d, i);
    if (d->n > 0) {
        struct nvml *nvml = NULL;
        TRY(nvml_open(agent->options->nvml, &nvml, e));
        TRY(monitor_open(agent->loop, nvml, on_reading, d, &d->monitor, e));
    }
    *ret = take_ptr(&d);
    return ST_OK;
}

struct devices *devices_close(struct devices *d) {
    if (!d)
        return NULL;
    d->monitor = monitor_close(d->monitor);
    free(d);
    return NULL;
}
