/* A family's samples must follow each other, so that each family is one pass over the sweeps, jobs or executors. The
 * values of jobs and executors are copied before. A table names the families; a function reads a family's value from an
 * object. The name of a sweep needs no escapes. */
#include "service/http/metrics_objects.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { LABEL_BYTES = 400 };

/* ---- sweeps ---- */

static void put_trials(struct exposition *x, const struct store_sweep_brief *s) {
    const struct {
        const char *state;
        int n;
    } parts[] = { { "waiting", s->trials - s->created },
                  { "unfinished", s->created - s->ended },
                  { "succeeded", s->succeeded },
                  { "failed", s->failed },
                  { "cancelled", s->ended - s->succeeded - s->failed } };
    for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
        char labels[LABEL_BYTES];
        snprintf(labels, sizeof labels, "sweep=\"%s\",state=\"%s\"", s->name, parts[i].state);
        exposition_object(x, "trainyard_sweep_trials", labels, parts[i].n);
    }
}

void metrics_put_sweeps(struct exposition *x, const struct store_sweep_brief *sweeps, size_t n) {
    exposition_family(x, "trainyard_sweep_trials", "gauge", "Trials of a sweep that has not ended, by state.");
    for (size_t i = 0; i < n; i++)
        put_trials(x, &sweeps[i]);
    exposition_family(x, "trainyard_sweep_best_metric", "gauge", "The best metric of its trials that succeeded.");
    for (size_t i = 0; i < n; i++) {
        char labels[LABEL_BYTES];
        snprintf(labels, sizeof labels, "sweep=\"%s\"", sweeps[i].name);
        exposition_object(x, "trainyard_sweep_best_metric", labels, sweeps[i].best_metric);
    }
}

/* ---- jobs ---- */

struct job {
    const struct store_job_brief *row;
    bool has_progress;
    struct progress_values progress;
    char label[32]; /* job_id="7" */
};

static double job_step(const struct job *j) { return j->has_progress ? (double)j->progress.step : NAN; }
static double job_steps(const struct job *j) { return j->row->steps > 0 ? (double)j->row->steps : NAN; }
static double job_loss(const struct job *j) { return j->progress.loss; }
static double job_validation_loss(const struct job *j) { return j->progress.validation_loss; }
static double job_tokens(const struct job *j) { return job_step(j) * j->progress.tokens_per_step; }
static double job_token_rate(const struct job *j) { return j->progress.tokens_per_second; }
static double job_sample_rate(const struct job *j) { return j->progress.samples_per_second; }
static double job_restarts(const struct job *j) { return j->row->restarts; }

static const struct job_family {
    const char *name, *help;
    double (*value)(const struct job *);
} JOB_FAMILIES[] = {
    { "trainyard_job_step", "The newest stored step.", job_step },
    { "trainyard_job_steps", "The step at which the job ends, if it is known.", job_steps },
    { "trainyard_job_loss", "The loss of the newest stored step.", job_loss },
    { "trainyard_job_validation_loss", "The newest validation loss.", job_validation_loss },
    { "trainyard_job_tokens", "Tokens of all steps up to the newest one.", job_tokens },
    { "trainyard_job_tokens_per_second", "Tokens per second of the newest step.", job_token_rate },
    { "trainyard_job_samples_per_second", "Samples per second of the newest step.", job_sample_rate },
    { "trainyard_job_restarts", "Restarts that count against max_restarts.", job_restarts },
};

static void put_job_info(struct exposition *x, const struct job *jobs, size_t n) {
    exposition_family(x, "trainyard_job_info", "gauge", "1; a job that has not ended, and its state.");
    for (size_t i = 0; i < n; i++) {
        char labels[LABEL_BYTES], name[160], queue[120], state[32] = "";
        const char *from = store_job_state_name(jobs[i].row->state);
        for (size_t k = 0; from[k] && k < sizeof state - 1; k++)
            state[k] = (char)tolower((unsigned char)from[k]);
        exposition_escape(jobs[i].row->name, name, sizeof name);
        exposition_escape(jobs[i].row->queue, queue, sizeof queue);
        snprintf(labels, sizeof labels, "%s,name=\"%s\",queue=\"%s\",state=\"%s\"", jobs[i].label, name, queue, state);
        exposition_object(x, "trainyard_job_info", labels, 1);
    }
}

void metrics_put_jobs(struct exposition *x, struct progress *progress, const struct store_job_brief *rows, size_t n) {
    CLEANUP(freep) struct job *jobs = alloc_zeroed(n + 1, sizeof *jobs);
    for (size_t i = 0; i < n; i++) {
        struct job *j = &jobs[i];
        j->row = &rows[i];
        j->progress = (struct progress_values){ 0, NAN, NAN, NAN, NAN, NAN };
        j->has_progress = progress_get(progress, j->row->id, &j->progress);
        snprintf(j->label, sizeof j->label, "job_id=\"%lld\"", (long long)j->row->id);
    }
    put_job_info(x, jobs, n);
    for (size_t f = 0; f < sizeof JOB_FAMILIES / sizeof *JOB_FAMILIES; f++) {
        exposition_family(x, JOB_FAMILIES[f].name, "gauge", JOB_FAMILIES[f].help);
        for (size_t i = 0; i < n; i++)
            exposition_object(x, JOB_FAMILIES[f].name, jobs[i].label, JOB_FAMILIES[f].value(&jobs[i]));
    }
}

static int compare_seconds(const void *job, const void *seconds) {
    const int64_t a = *(const int64_t *)job, b = ((const struct store_job_seconds *)seconds)->job;
    return (a > b) - (a < b);
}

void metrics_put_rank_seconds(struct exposition *x, const struct store_job_brief *jobs, size_t n,
                              const struct store_job_seconds *seconds, size_t n_seconds) {
    exposition_family(x, "trainyard_job_rank_seconds_total", "counter",
                      "Time of all ranks of all attempts, by what it was spent on.");
    for (size_t i = 0; i < n; i++) {
        const struct store_job_seconds *s = n_seconds > 0 ? bsearch(&jobs[i].id, seconds, n_seconds, sizeof *seconds,
                                                                    compare_seconds)
                                                          : NULL;
        if (!s)
            continue;
        const struct {
            const char *cause;
            double seconds;
        } parts[] = { { "start", s->sum.start },
                      { "data", s->sum.data },
                      { "compute", s->sum.compute },
                      { "waiting", s->sum.waiting },
                      { "checkpoint", s->sum.checkpoint },
                      { "repeated", s->sum.repeated },
                      { "idle", s->sum.idle } };
        for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
            char labels[LABEL_BYTES];
            snprintf(labels, sizeof labels, "job_id=\"%lld\",cause=\"%s\"", (long long)jobs[i].id, parts[k].cause);
            exposition_object(x, "trainyard_job_rank_seconds_total", labels, parts[k].seconds);
        }
    }
}

/* ---- executors ---- */

struct executor {
    const struct dispatch_use *use;
    double last_seen_seconds; /* since 1970 */
    char label[96];
};

#define REPORTED(member)                                                                                               \
    static double executor_##member(const struct executor *x) {                                                        \
        return x->use->reported ? (double)x->use->member : NAN;                                                        \
    }
REPORTED(spool_bytes)
REPORTED(spool_limit_bytes)
REPORTED(records_waiting)
REPORTED(training_waits)
REPORTED(connects)
REPORTED(disconnects)
static double executor_last_seen(const struct executor *x) { return x->last_seen_seconds; }

static const struct executor_family {
    const char *name, *type, *help;
    double (*value)(const struct executor *);
} EXECUTOR_FAMILIES[] = {
    { "trainyard_executor_last_seen_timestamp_seconds", "gauge", "When an attached executor last sent something.",
      executor_last_seen },
    { "trainyard_executor_spool_bytes", "gauge", "Bytes of records that the controller has not acknowledged.",
      executor_spool_bytes },
    { "trainyard_executor_spool_limit_bytes", "gauge", "The size at which the spool is full.",
      executor_spool_limit_bytes },
    { "trainyard_executor_records_waiting", "gauge", "Records that the controller has not acknowledged.",
      executor_records_waiting },
    { "trainyard_executor_training_waits_total", "counter", "Times that a rank waited because the spool was full.",
      executor_training_waits },
    { "trainyard_executor_connects_total", "counter", "Control streams that a controller has welcomed.",
      executor_connects },
    { "trainyard_executor_disconnects_total", "counter", "Control streams that have ended.", executor_disconnects },
};

static void put_dropped(struct exposition *x, const struct executor *executors, size_t n) {
    char labels[LABEL_BYTES];
    exposition_family(x, "trainyard_executor_records_dropped_total", "counter",
                      "Records that a full spool did not take.");
    for (size_t i = 0; i < n; i++) {
        const struct dispatch_use *u = executors[i].use;
        snprintf(labels, sizeof labels, "%s,kind=\"device_sample\"", executors[i].label);
        exposition_object(x, "trainyard_executor_records_dropped_total", labels,
                          u->reported ? (double)u->samples_dropped : NAN);
        snprintf(labels, sizeof labels, "%s,kind=\"log_line\"", executors[i].label);
        exposition_object(x, "trainyard_executor_records_dropped_total", labels,
                          u->reported ? (double)u->lines_dropped : NAN);
    }
}

static void put_data(struct exposition *x, const struct executor *executors, size_t n) {
    static const char NAME[] = "trainyard_executor_data_bytes_total";
    exposition_family(x, NAME, "counter", "Bytes of the data of jobs, by where they came from.");
    for (size_t i = 0; i < n; i++) {
        const struct dispatch_use *u = executors[i].use;
        const struct {
            const char *source;
            int64_t bytes;
        } parts[] = { { "store", u->data_store_bytes },
                      { "peer", u->data_peer_bytes },
                      { "cache", u->data_cache_bytes } };
        for (size_t k = 0; k < sizeof parts / sizeof *parts; k++) {
            char labels[LABEL_BYTES];
            snprintf(labels, sizeof labels, "%s,source=\"%s\"", executors[i].label, parts[k].source);
            exposition_object(x, NAME, labels, u->reported ? (double)parts[k].bytes : NAN);
        }
    }
}

static double device_utilization(const struct dispatch_device *d) { return d->utilization; }
static double device_memory(const struct dispatch_device *d) { return d->memory_bytes; }
static double device_power(const struct dispatch_device *d) { return d->power_watts; }
static double device_temperature(const struct dispatch_device *d) { return d->temperature_celsius; }

static const struct device_family {
    const char *name, *help;
    double (*value)(const struct dispatch_device *);
} DEVICE_FAMILIES[] = {
    { "trainyard_device_utilization_ratio", "The share of time in which a kernel ran, 0 to 1.", device_utilization },
    { "trainyard_device_memory_used_bytes", "Memory of the device in use.", device_memory },
    { "trainyard_device_power_watts", "Power of the device.", device_power },
    { "trainyard_device_temperature_celsius", "Temperature of the device.", device_temperature },
};

static void put_devices(struct exposition *x, const struct dispatch_uses *uses, const struct executor *executors) {
    char labels[LABEL_BYTES];
    for (size_t f = 0; f < sizeof DEVICE_FAMILIES / sizeof *DEVICE_FAMILIES; f++) {
        const struct device_family *family = &DEVICE_FAMILIES[f];
        exposition_family(x, family->name, "gauge", family->help);
        for (size_t i = 0; i < uses->n; i++)
            for (size_t k = 0; k < uses->items[i].n_devices; k++) {
                const struct dispatch_device *d = &uses->devices[uses->items[i].first_device + k];
                snprintf(labels, sizeof labels, "%s,device=\"%d\"", executors[i].label, d->index);
                exposition_object(x, family->name, labels, family->value(d));
            }
    }
}

static void put_executor_info(struct exposition *x, const struct executor *executors, size_t n) {
    char labels[LABEL_BYTES], host[140];
    exposition_family(x, "trainyard_executor_info", "gauge", "1; an attached executor and its host.");
    for (size_t i = 0; i < n; i++) {
        exposition_escape(executors[i].use->hostname, host, sizeof host);
        snprintf(labels, sizeof labels, "%s,host=\"%s\"", executors[i].label, host);
        exposition_object(x, "trainyard_executor_info", labels, 1);
    }
}

void metrics_put_executors(struct exposition *x, struct dispatch *dispatch) {
    struct dispatch_uses uses;
    dispatch_use(dispatch, &uses);
    CLEANUP(freep) struct executor *executors = alloc_zeroed(uses.n + 1, sizeof *executors);
    const int64_t now_ms = clock_mono_ms(), now_us = clock_wall_us();
    for (size_t i = 0; i < uses.n; i++) {
        executors[i].use = &uses.items[i];
        executors[i].last_seen_seconds = (double)now_us / 1e6 - (double)(now_ms - uses.items[i].last_seen_ms) / 1e3;
        snprintf(executors[i].label, sizeof executors[i].label, "executor=\"%s\"", uses.items[i].executor);
    }
    put_executor_info(x, executors, uses.n);
    for (size_t f = 0; f < sizeof EXECUTOR_FAMILIES / sizeof *EXECUTOR_FAMILIES; f++) {
        const struct executor_family *family = &EXECUTOR_FAMILIES[f];
        exposition_family(x, family->name, family->type, family->help);
        for (size_t i = 0; i < uses.n; i++)
            exposition_object(x, family->name, executors[i].label, family->value(&executors[i]));
    }
    put_dropped(x, executors, uses.n);
    put_data(x, executors, uses.n);
    put_devices(x, &uses, executors);
    dispatch_uses_done(&uses);
}
