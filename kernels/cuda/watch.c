/* Timers, which record the device's clock at places of the queue for a profile; and ranges, which name calls for
 * NVTX tools. */
#include "kernels/cuda/ops.h"

#include <nvtx3/nvToolsExt.h>
#include <pthread.h>

static status_t timer_new(const struct kernels *k, void **ret, struct err *e) {
    (void)k;
    cudaEvent_t event = NULL;
    TRY(cuda_status(cudaEventCreateWithFlags(&event, cudaEventDefault), "making a timer", e));
    *ret = event;
    return ST_OK;
}

static void timer_free(const struct kernels *k, void *timer) {
    (void)k;
    if (timer)
        (void)cudaEventDestroy(timer);
}

static status_t timer_record(const struct kernels *k, void *timer, struct err *e) {
    return cuda_status(cudaEventRecord(timer, cuda_of(k)->stream), "marking a time in the queue", e);
}

static status_t timer_between(const struct kernels *k, void *from, void *to, int64_t *ret_ns, struct err *e) {
    float ms = 0;
    (void)k;
    TRY(cuda_status(cudaEventElapsedTime(&ms, from, to), "reading the device's clock", e));
    *ret_ns = (int64_t)((double)ms * 1e6);
    return ST_OK;
}

/* --- ranges ---*/

static nvtxDomainHandle_t domain; /* NULL: no tool is attached */

static void range_begin(const struct kernels *k, const char *name) {
    (void)k;
    const nvtxEventAttributes_t range = { .version = NVTX_VERSION,
                                          .size = NVTX_EVENT_ATTRIB_STRUCT_SIZE,
                                          .messageType = NVTX_MESSAGE_TYPE_ASCII,
                                          .message = { .ascii = name } };
    (void)nvtxDomainRangePushEx(domain, &range);
}

static void range_end(const struct kernels *k) {
    (void)k;
    (void)nvtxDomainRangePop(domain);
}

/* NVTX looks for a tool once (NVTX_INJECTION64_PATH, which tools set) and creates no domain without one. */
static void domain_new(void) { domain = nvtxDomainCreateA("trainyard"); }

void cuda_watch_table(struct kernels *t) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, domain_new);
    t->timer_new = timer_new;
    t->timer_free = timer_free;
    t->timer_record = timer_record;
    t->timer_between = timer_between;
    if (domain) {
        t->range_begin = range_begin;
        t->range_end = range_end;
    }
}
