/* Traces: which kernels and copies the device has run, and when, from CUPTI's activity records.
 *
 * CUPTI delivers full buffers on any thread. Two kinds of records matter: a run (kernel, copy or fill) has the
 * number of the CUDA call that launched it, and a link connects the number of a call with the mark that was set
 * during the call. Both are collected in arrays of fixed size while the trace is open, under one lock. Runs that do
 * not fit are counted as lost. trace_read then sorts the links and finds the mark of each run by binary search.
 *
 * Names are demangled once and shared. The clock of all records is the host's monotonic clock. CUPTI allows one
 * receiver per process, so there is one static receiver, which outlives the traces. */
#include "kernels/trace.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "kernels/cuda/cuda.h"
#include "kernels/cuda/lib/cupti.h"
#include "kernels/cuda/lib/kernel_name.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* The mark that was set during a call. */
struct link {
    uint32_t call;
    int64_t mark;
};

struct name {
    uint64_t hash; /* of the symbol; 0: free */
    char text[TRACE_NAME_BYTES];
};

struct trace {
    const struct cupti *cupti;
    int64_t max_runs, n, lost;
    struct trace_run *runs; /* [max_runs] */
    uint32_t *calls;        /* the calls that launched them */
    int64_t max_links, n_links;
    struct link *links; /* [max_links] */
    int n_names;
    struct name names[TRACE_NAMES];
};

/* CUPTI allows one receiver in a process. Its buffers are never freed, because CUPTI may still use one. */
static struct receiver {
    pthread_mutex_t lock;
    struct trace *open; /* NULL: records are dropped */
    uint8_t *buffers[TRACE_BUFFERS];
    bool taken[TRACE_BUFFERS];
    bool registered;
} receiver = { .lock = PTHREAD_MUTEX_INITIALIZER };

static const CUpti_ActivityKind KINDS[] = {
    CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION, CUPTI_ACTIVITY_KIND_RUNTIME, CUPTI_ACTIVITY_KIND_DRIVER,
    CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,    CUPTI_ACTIVITY_KIND_MEMCPY,  CUPTI_ACTIVITY_KIND_MEMSET,
};
enum { N_KINDS = sizeof KINDS / sizeof *KINDS };

/* --- records ---*/

static uint64_t hash_of(const char *symbol) {
    uint64_t hash = 0xcbf29ce484222325u; /* FNV-1a */
    for (; *symbol; symbol++)
        hash = (hash ^ (uint8_t)*symbol) * 0x100000001b3u;
    /* 0 is reserved for free entries. */
    return hash ? hash : 1;
}

static const char *name_keep(struct trace *t, const char *symbol) {
    const uint64_t hash = hash_of(symbol);
    for (int i = 0; i < t->n_names; i++)
        if (t->names[i].hash == hash)
            return t->names[i].text;
    if (t->n_names == TRACE_NAMES)
        return "other";
    struct name *name = &t->names[t->n_names++];
    name->hash = hash;
    cuda_kernel_name(symbol, name->text, sizeof name->text);
    return name->text;
}

static void run_take(struct trace *t, const char *name, uint64_t start, uint64_t end, uint32_t call, uint32_t stream) {
    /* If CUPTI has no device memory left for its own use, the times are zero. */
    if (t->n == t->max_runs || start == 0 || end < start || end > INT64_MAX) {
        t->lost++;
        return;
    }
    t->calls[t->n] = call;
    t->runs[t->n++] = (struct trace_run){
        .start_ns = (int64_t)start, .end_ns = (int64_t)end, .mark = -1, .name = name, .stream = stream
    };
}

static void link_take(struct trace *t, const CUpti_ActivityExternalCorrelation *r) {
    if (r->externalKind != CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0 || r->externalId > INT64_MAX)
        return;
    if (t->n_links < t->max_links)
        t->links[t->n_links++] = (struct link){ .call = r->correlationId, .mark = (int64_t)r->externalId };
}

static const char *copy_name(uint8_t kind) {
    switch (kind) {
    case CUPTI_ACTIVITY_MEMCPY_KIND_HTOD: return "copy to the device";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOH: return "copy to the host";
    case CUPTI_ACTIVITY_MEMCPY_KIND_DTOD: return "copy on the device";
    default: return "copy";
    }
}

static size_t record_bytes(CUpti_ActivityKind kind) {
    switch (kind) {
    case CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION: return sizeof(CUpti_ActivityExternalCorrelation);
    case CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: return sizeof(CUpti_ActivityKernel10);
    case CUPTI_ACTIVITY_KIND_MEMCPY: return sizeof(CUpti_ActivityMemcpy6);
    case CUPTI_ACTIVITY_KIND_MEMSET: return sizeof(CUpti_ActivityMemset4);
    default: return sizeof(CUpti_Activity);
    }
}

static void record_take(struct trace *t, const CUpti_Activity *r) {
    if (r->kind == CUPTI_ACTIVITY_KIND_EXTERNAL_CORRELATION) {
        link_take(t, (const CUpti_ActivityExternalCorrelation *)r);
    } else if (r->kind == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) {
        const CUpti_ActivityKernel10 *k = (const CUpti_ActivityKernel10 *)r;
        run_take(t, name_keep(t, k->name ? k->name : "unnamed"), k->start, k->end, k->correlationId, k->streamId);
    } else if (r->kind == CUPTI_ACTIVITY_KIND_MEMCPY) {
        const CUpti_ActivityMemcpy6 *m = (const CUpti_ActivityMemcpy6 *)r;
        run_take(t, copy_name(m->copyKind), m->start, m->end, m->correlationId, m->streamId);
    } else if (r->kind == CUPTI_ACTIVITY_KIND_MEMSET) {
        const CUpti_ActivityMemset4 *m = (const CUpti_ActivityMemset4 *)r;
        run_take(t, "fill", m->start, m->end, m->correlationId, m->streamId);
    }
}

/* Each record must lie completely within the valid part and after the record before it. Otherwise the rest of the
 * buffer is lost. */
static void buffer_take(struct trace *t, uint8_t *buffer, size_t valid) {
    const uint8_t *end = buffer + (valid < TRACE_BUFFER_BYTES ? valid : TRACE_BUFFER_BYTES), *at = buffer;
    CUpti_Activity *r = NULL;
    CUptiResult result;
    while ((result = t->cupti->cuptiActivityGetNextRecord(buffer, (size_t)(end - buffer), &r)) == CUPTI_SUCCESS) {
        const uint8_t *from = (const uint8_t *)r;
        if (from < at || from > end || (size_t)(end - from) < sizeof(CUpti_Activity) ||
            (size_t)(end - from) < record_bytes(r->kind))
            break;
        record_take(t, r);
        at = from + record_bytes(r->kind);
    }
    t->lost += result != CUPTI_ERROR_MAX_LIMIT_REACHED;
}

static void CUPTIAPI buffer_wanted(uint8_t **buffer, size_t *size, size_t *limit) {
    *buffer = NULL;
    *size = *limit = 0;
    pthread_mutex_lock(&receiver.lock);
    for (int i = 0; i < TRACE_BUFFERS && !*buffer; i++)
        if (!receiver.taken[i] && receiver.buffers[i]) {
            receiver.taken[i] = true;
            *buffer = receiver.buffers[i];
            *size = TRACE_BUFFER_BYTES;
        }
    pthread_mutex_unlock(&receiver.lock);
}

static void CUPTIAPI buffer_full(CUcontext context, uint32_t stream, uint8_t *buffer, size_t size, size_t valid) {
    (void)size;
    size_t dropped = 0;
    pthread_mutex_lock(&receiver.lock);
    int i = 0;
    while (i < TRACE_BUFFERS && !(receiver.taken[i] && receiver.buffers[i] == buffer))
        i++;
    struct trace *t = receiver.open;
    if (t && i < TRACE_BUFFERS) {
        buffer_take(t, buffer, valid);
        if (t->cupti->cuptiActivityGetNumDroppedRecords(context, stream, &dropped) == CUPTI_SUCCESS)
            t->lost += dropped < INT32_MAX ? (int64_t)dropped : INT32_MAX;
    }
    if (i < TRACE_BUFFERS)
        receiver.taken[i] = false;
    pthread_mutex_unlock(&receiver.lock);
}

static uint64_t CUPTIAPI host_clock(void) { return (uint64_t)clock_mono_ns(); }

/* --- from open to close ---*/

/* Call this before any kind of activity is enabled, because the clock applies only to kinds that are enabled later. */
static status_t receiver_ready(const struct cupti *c, struct err *e) {
    for (int i = 0; i < TRACE_BUFFERS; i++) {
        if (!receiver.buffers[i])
            receiver.buffers[i] = aligned_alloc(64, TRACE_BUFFER_BYTES);
        if (!receiver.buffers[i])
            return err_set(e, ST_RESOURCE_EXHAUSTED, "no memory for the buffers of a trace");
    }
    if (receiver.registered)
        return ST_OK;
    TRY(cupti_status(c, c->cuptiActivityRegisterTimestampCallback(host_clock), "giving CUPTI the host's clock", e));
    TRY(cupti_status(c, c->cuptiActivityRegisterCallbacks(buffer_wanted, buffer_full), "registering with CUPTI", e));
    receiver.registered = true;
    return ST_OK;
}

static void trace_free(struct trace *t) {
    if (!t)
        return;
    free(t->runs);
    free(t->calls);
    free(t->links);
    free(t);
}

/* There may be two calls for a launch, the runtime's and the driver's, and some calls launch nothing; so 4 links per
 * run. */
static struct trace *trace_new(const struct cupti *c, int64_t max_runs) {
    struct trace *t = alloc_zeroed(1, sizeof *t);
    t->cupti = c;
    t->max_runs = max_runs;
    t->max_links = 4 * max_runs;
    t->runs = alloc_zeroed((size_t)t->max_runs + 1, sizeof *t->runs);
    t->calls = alloc_zeroed((size_t)t->max_runs + 1, sizeof *t->calls);
    t->links = alloc_zeroed((size_t)t->max_links + 1, sizeof *t->links);
    return t;
}

static status_t trace_open(int64_t max_runs, struct trace **ret, struct err *e) {
    const struct cupti *c = NULL;
    pthread_mutex_lock(&receiver.lock);
    status_t st = receiver.open ? err_set(e, ST_FAILED_PRECONDITION, "this process is traced already") : ST_OK;
    if (st == ST_OK)
        st = cupti_load(&c, e);
    if (st == ST_OK)
        st = receiver_ready(c, e);
    if (st == ST_OK)
        receiver.open = *ret = trace_new(c, max_runs);
    pthread_mutex_unlock(&receiver.lock);
    return st;
}

status_t cuda_trace_check(struct err *e) {
    const struct cupti *c = NULL;
    pthread_mutex_lock(&receiver.lock);
    status_t st = cupti_load(&c, e);
    pthread_mutex_unlock(&receiver.lock);
    return st;
}

static status_t trace_begin(struct trace *t, struct err *e) {
    for (int i = 0; i < N_KINDS; i++) {
        const status_t st = cupti_status(t->cupti, t->cupti->cuptiActivityEnable(KINDS[i]), "beginning to trace", e);
        if (st == ST_OK)
            continue;
        while (--i >= 0)
            (void)t->cupti->cuptiActivityDisable(KINDS[i]);
        return st;
    }
    return ST_OK;
}

static void trace_mark(struct trace *t, int64_t mark) {
    (void)t->cupti->cuptiActivityPushExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, (uint64_t)mark);
}

static void trace_unmark(struct trace *t) {
    uint64_t last;
    (void)t->cupti->cuptiActivityPopExternalCorrelationId(CUPTI_EXTERNAL_CORRELATION_KIND_CUSTOM0, &last);
}

static status_t trace_end(struct trace *t, struct err *e) {
    const CUptiResult flushed = t->cupti->cuptiActivityFlushAll(0);
    for (int i = 0; i < N_KINDS; i++)
        (void)t->cupti->cuptiActivityDisable(KINDS[i]);
    return cupti_status(t->cupti, flushed, "collecting what was traced", e);
}

static int by_call(const void *a, const void *b) {
    const struct link *x = a, *y = b;
    return (x->call > y->call) - (x->call < y->call);
}

static void trace_read(struct trace *t, const struct trace_run **ret, int64_t *ret_n, int64_t *ret_lost) {
    pthread_mutex_lock(&receiver.lock);
    qsort(t->links, (size_t)t->n_links, sizeof *t->links, by_call);
    for (int64_t i = 0; i < t->n; i++) {
        const struct link key = { .call = t->calls[i] };
        const struct link *link = bsearch(&key, t->links, (size_t)t->n_links, sizeof *t->links, by_call);
        t->runs[i].mark = link ? link->mark : -1;
    }
    *ret = t->runs;
    *ret_n = t->n;
    *ret_lost = t->lost;
    pthread_mutex_unlock(&receiver.lock);
}

/* Records that have not arrived yet are dropped. The forced flush makes CUPTI return all its buffers. */
static struct trace *trace_close(struct trace *t) {
    if (!t)
        return NULL;
    pthread_mutex_lock(&receiver.lock);
    receiver.open = NULL;
    pthread_mutex_unlock(&receiver.lock);
    for (int i = 0; i < N_KINDS; i++)
        (void)t->cupti->cuptiActivityDisable(KINDS[i]);
    (void)t->cupti->cuptiActivityFlushAll(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
    trace_free(t);
    return NULL;
}

const struct kernels_trace cuda_trace = {
    .open = trace_open,
    .close = trace_close,
    .begin = trace_begin,
    .mark = trace_mark,
    .unmark = trace_unmark,
    .end = trace_end,
    .read = trace_read,
};
