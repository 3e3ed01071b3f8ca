#include "service/rpc/convert_executor.h"

#include "service/rpc/convert_job.h"

Trainyard__V1__Executor *convert_executor(struct arena *a, const struct store_executor *row) {
    Trainyard__V1__Executor *x = arena_alloc(a, 1, sizeof *x);
    trainyard__v1__executor__init(x);
    x->name = arena_printf(a, "executors/%s", row->id);
    x->state = (Trainyard__V1__Executor__State)row->state;
    x->hostname = (char *)row->hostname;
    x->address = (char *)row->address;
    x->slots = row->slots;
    x->slots_used = row->slots_used;
    x->version = (char *)row->version;
    x->attach_time = convert_timestamp(a, row->attach_time_us);
    x->heartbeat_time = convert_timestamp(a, row->heartbeat_time_us);
    x->reason = (char *)row->reason;
    x->n_devices = row->devices_n;
    x->devices = arena_alloc(a, row->devices_n, sizeof *x->devices);
    for (size_t i = 0; i < row->devices_n; i++) {
        Trainyard__V1__Device *d = x->devices[i] = arena_alloc(a, 1, sizeof *d);
        trainyard__v1__device__init(d);
        d->kind = (char *)row->devices[i].kind;
        d->index = row->devices[i].index;
        d->model = (char *)row->devices[i].model;
        d->memory_bytes = row->devices[i].memory_bytes;
    }
    return x;
}
