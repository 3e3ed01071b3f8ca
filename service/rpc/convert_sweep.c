#include "service/rpc/convert_sweep.h"

#include "api/spec/sweep_draw.h"
#include "base/alloc.h"
#include "service/rpc/convert_job.h"
#include "service/rpc/convert_state.h"

#include <stdlib.h>

char **convert_parameters(struct arena *a, const Trainyard__V1__SweepSpec *spec) {
    char **paths = arena_alloc(a, spec->n_parameters, sizeof *paths);
    for (size_t i = 0; i < spec->n_parameters; i++)
        paths[i] = spec->parameters[i]->key;
    return paths;
}

Trainyard__V1__Sweep *convert_sweep(struct arena *a, const struct store_sweep *row, Trainyard__V1__SweepSpec *spec) {
    Trainyard__V1__Sweep *s = arena_message(a, &trainyard__v1__sweep__descriptor);
    s->name = arena_printf(a, "sweeps/%s", row->name);
    s->state = convert_sweep_state(row->state);
    s->reason = (char *)row->reason;
    s->user = (char *)row->user;
    s->trials = row->trials;
    s->created = row->created;
    s->ended = row->ended;
    s->succeeded = row->succeeded;
    s->failed = row->failed;
    s->stopped = row->stopped;
    s->create_time = convert_timestamp(a, row->create_time_us);
    s->end_time = convert_timestamp(a, row->end_time_us);
    s->spec = spec;
    if (spec) {
        s->parameters = convert_parameters(a, spec);
        s->n_parameters = spec->n_parameters;
    }
    return s;
}

Trainyard__V1__Trial *convert_trial_values(struct arena *a, const Trainyard__V1__SweepSpec *spec, int number) {
    Trainyard__V1__Trial *t = arena_message(a, &trainyard__v1__trial__descriptor);
    struct sweep_value *values = arena_alloc(a, spec->n_parameters, sizeof *values);
    sweep_draw(spec, number, values);
    t->number = number;
    t->values = arena_alloc(a, spec->n_parameters, sizeof *t->values);
    t->n_values = spec->n_parameters;
    for (size_t i = 0; i < spec->n_parameters; i++)
        t->values[i] = (char *)values[i].text;
    return t;
}

Trainyard__V1__Trial *convert_trial(struct arena *a, const Trainyard__V1__SweepSpec *spec,
                                    const struct store_trial *row) {
    Trainyard__V1__Trial *t = convert_trial_values(a, spec, row->number);
    if (row->job)
        t->job = arena_printf(a, "jobs/%lld", (long long)row->job);
    t->state = convert_job_state(row->state);
    t->reason = (char *)row->reason;
    t->step = row->step;
    t->stop_step = row->stop_step;
    if (row->has_metric) {
        t->metric = row->metric;
        t->_metric_case = TRAINYARD__V1__TRIAL___METRIC_METRIC;
    }
    return t;
}
