/* A profile as a trace in Chrome's JSON format, which Perfetto reads. */
#include "engine/run/label.h"
#include "engine/run/profiler_state.h"

#include <stdio.h>

static status_t trace_event(const struct profiler *p, int rank, int track, const struct event *v, int64_t zero,
                            struct bytes *ret, struct err *e) {
    const double us = (double)(v->start - zero) / 1e3, long_us = (double)(v->end - v->start) / 1e3;
    if (track == STEPS_TRACK)
        return bytes_printf(ret, e,
                            ",\n{\"ph\":\"i\",\"s\":\"p\",\"pid\":%d,\"tid\":0,\"ts\":%.3f,\"name\":\"step %lld\"}",
                            rank, us, (long long)v->number);
    if (track == PROFILER_DATA_WAIT || track == PROFILER_CHECKPOINT)
        return bytes_printf(ret, e, ",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"name\":\"%s\"}",
                            rank, track, us, long_us, PROFILER_TRACK_NAME[track]);
    const struct instruction *i = &p->plan->queue[track == CALLS_TRACK ? QUEUE_COMPUTE : track].items[v->number];
    char label[LABEL_BYTES];
    label_instruction(p->plan, i, label);
    TRY(bytes_printf(ret, e, ",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":%.3f,\"dur\":%.3f,\"name\":\"%s\"", rank,
                     track, us, long_us, label));
    if (i->micro_batch >= 0)
        TRY(bytes_printf(ret, e, ",\"args\":{\"micro_batch\":%d}", i->micro_batch));
    return bytes_printf(ret, e, "}");
}

/* --- kernels and copies: one track for each queue of the device --- */

enum { STREAM_TRACKS = 100, MAX_STREAMS = 64 };

static status_t escaped(const char *text, struct bytes *ret, struct err *e) {
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        if (c < ' ' || c == '"' || c == '\\')
            TRY(bytes_printf(ret, e, "\\u%04x", c));
        else
            TRY(bytes_append(ret, text, 1, e));
    }
    return ST_OK;
}

static status_t trace_run(const struct profiler *p, int rank, const struct trace_run *run, int64_t zero,
                          struct bytes *ret, struct err *e) {
    const struct track *compute = &p->tracks[PROFILER_COMPUTE];
    TRY(bytes_printf(ret, e, ",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":%lld,\"ts\":%.3f,\"dur\":%.3f,\"name\":\"", rank,
                     STREAM_TRACKS + (long long)run->stream, (double)(run->start_ns - zero) / 1e3,
                     (double)(run->end_ns - run->start_ns) / 1e3));
    TRY(escaped(run->name, ret, e));
    TRY(bytes_printf(ret, e, "\""));
    if (run->mark >= 0 && run->mark < compute->n) {
        char label[LABEL_BYTES];
        label_instruction(p->plan, &p->plan->queue[QUEUE_COMPUTE].items[compute->events[run->mark].number], label);
        TRY(bytes_printf(ret, e, ",\"args\":{\"operation\":\"%s\"}", label));
    }
    return bytes_printf(ret, e, "}");
}

/* Names a run's track when it first appears. Streams after the first MAX_STREAMS get no name. */
static status_t name_stream(uint32_t stream, int rank, uint32_t *named, int *n, struct bytes *ret, struct err *e) {
    for (int i = 0; i < *n; i++)
        if (named[i] == stream)
            return ST_OK;
    if (*n == MAX_STREAMS)
        return ST_OK;
    named[(*n)++] = stream;
    return bytes_printf(
        ret, e,
        ",\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%lld,\"name\":\"thread_name\",\"args\":{\"name\":\"device, "
        "stream %u\"}}",
        rank, STREAM_TRACKS + (long long)stream, stream);
}

static status_t trace_runs(const struct profiler *p, int rank, int64_t zero, struct bytes *ret, struct err *e) {
    const struct trace_run *runs = NULL;
    int64_t n = 0, lost = 0;
    uint32_t named[MAX_STREAMS];
    int n_named = 0;
    if (p->trace)
        p->tracer->read(p->trace, &runs, &n, &lost);
    for (int64_t i = 0; i < n; i++) {
        TRY(name_stream(runs[i].stream, rank, named, &n_named, ret, e));
        TRY(trace_run(p, rank, &runs[i], zero, ret, e));
    }
    return ST_OK;
}

status_t profiler_trace(const struct profiler *p, int rank, struct bytes *ret, struct err *e) {
    int64_t zero = p->tracks[STEPS_TRACK].n ? p->tracks[STEPS_TRACK].events[0].start : 0;
    TRY(bytes_printf(
        ret, e,
        "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\","
        "\"args\":{\"name\":\"rank %d\"}}",
        rank, rank));
    for (int l = 0; l < STEPS_TRACK; l++)
        if (track_is_printed(p, l))
            TRY(bytes_printf(
                ret, e, ",\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":\"%s\"}}",
                rank, l, PROFILER_TRACK_NAME[l]));
    for (int l = 0; l < TRACKS; l++)
        for (int64_t i = 0; i < p->tracks[l].n && track_is_printed(p, l); i++)
            TRY(trace_event(p, rank, l, &p->tracks[l].events[i], zero, ret, e));
    TRY(trace_runs(p, rank, zero, ret, e));
    return bytes_printf(ret, e, "\n]}\n");
}
