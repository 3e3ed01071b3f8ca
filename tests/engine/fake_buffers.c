#include "tests/engine/fake_buffers.h"

#include "kernels/kernels.h"
#include "tests/engine/fake_device.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { BUFFERS = 32, HOST_BUFFERS = 256 };

static struct buffer {
    void *at;
    size_t bytes;
} buffers[BUFFERS], host_buffers[HOST_BUFFERS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void buffer_enter(struct buffer *of, int n, void *at, size_t bytes) {
    int i = 0;
    pthread_mutex_lock(&lock);
    while (i < n && of[i].at)
        i++;
    if (i == n)
        abort();
    of[i] = (struct buffer){ at, bytes };
    pthread_mutex_unlock(&lock);
}

void *device_buffer_new(size_t bytes) {
    void *at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        abort();
    buffer_enter(buffers, BUFFERS, at, bytes);
    return at;
}

void device_buffer_free(void *at) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < BUFFERS; i++)
        if (at && buffers[i].at == at) {
            munmap(at, buffers[i].bytes);
            buffers[i].at = NULL;
        }
    pthread_mutex_unlock(&lock);
}

void device_buffers_allow(bool may) {
    const int rights = may ? PROT_READ | PROT_WRITE : PROT_NONE;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < BUFFERS; i++)
        if (buffers[i].at && mprotect(buffers[i].at, buffers[i].bytes, rights) != 0)
            abort();
    pthread_mutex_unlock(&lock);
}

/* --- host buffers --------------------------------------------------------------------------------------------------
 */
status_t host_buffer_new(const struct kernels *open, size_t bytes, size_t most, void **ret, struct err *e) {
    if (bytes > most)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "this system pins no %zu bytes", bytes);
    TRY(open->host_memory_new(open, bytes, ret, e));
    buffer_enter(host_buffers, HOST_BUFFERS, *ret, bytes);
    return ST_OK;
}

void host_buffer_free(const struct kernels *open, void *at) {
    pthread_mutex_lock(&lock);
    for (int i = 0; at && i < HOST_BUFFERS; i++)
        if (host_buffers[i].at == at)
            host_buffers[i] = (struct buffer){ NULL, 0 };
    pthread_mutex_unlock(&lock);
    open->host_memory_free(open, at);
}

/* The index of the first buffer that contains the byte, or HOST_BUFFERS. */
static int host_buffer_of(const void *p) {
    int i = 0;
    while (i < HOST_BUFFERS && !((const char *)p >= (char *)host_buffers[i].at &&
                                 (const char *)p < (char *)host_buffers[i].at + host_buffers[i].bytes))
        i++;
    return i;
}

bool host_buffer_has(const void *p) {
    pthread_mutex_lock(&lock);
    const bool there = host_buffer_of(p) < HOST_BUFFERS;
    pthread_mutex_unlock(&lock);
    return there;
}

bool host_buffer_begins_before(const void *p) {
    pthread_mutex_lock(&lock);
    const int i = host_buffer_of(p);
    const bool behind = i < HOST_BUFFERS && p != host_buffers[i].at;
    pthread_mutex_unlock(&lock);
    return behind;
}

struct held {
    struct call call;
    const void *host;
};

static status_t held_run(struct call *c, struct err *e) {
    (void)e;
    c->line->clock_ns -= FAKE_DEVICE_CALL_NS; /* this check takes no time */
    if (!host_buffer_has(((const struct held *)c)->host))
        abort(); /* the buffer was freed before the device had finished with it */
    return ST_OK;
}

bool host_buffer_hold(struct fake_queue *l, const struct kernels *open, const void *host) {
    if (!host_buffer_has(host))
        return false;
    if (l->captures)
        abort();
    struct held *h = fake_queue_call(l, open, sizeof *h, held_run);
    h->host = host;
    return true;
}
