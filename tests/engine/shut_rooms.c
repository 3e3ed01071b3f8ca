#include "tests/engine/shut_rooms.h"

#include "kernels/kernels.h"
#include "tests/engine/shut_memory.h"

#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

enum { ROOMS = 32, HOST_ROOMS = 256 };

static struct room {
    void *at;
    size_t bytes;
} rooms[ROOMS], host_rooms[HOST_ROOMS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void room_enter(struct room *of, int n, void *at, size_t bytes) {
    int i = 0;
    pthread_mutex_lock(&lock);
    while (i < n && of[i].at)
        i++;
    if (i == n)
        abort();
    of[i] = (struct room){ at, bytes };
    pthread_mutex_unlock(&lock);
}

void *room_new(size_t bytes) {
    void *at = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
        abort();
    room_enter(rooms, ROOMS, at, bytes);
    return at;
}

void room_free(void *at) {
    pthread_mutex_lock(&lock);
    for (int i = 0; i < ROOMS; i++)
        if (at && rooms[i].at == at) {
            munmap(at, rooms[i].bytes);
            rooms[i].at = NULL;
        }
    pthread_mutex_unlock(&lock);
}

void rooms_touch(bool may) {
    const int rights = may ? PROT_READ | PROT_WRITE : PROT_NONE;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < ROOMS; i++)
        if (rooms[i].at && mprotect(rooms[i].at, rooms[i].bytes, rights) != 0)
            abort();
    pthread_mutex_unlock(&lock);
}

/* --- the host's ----------------------------------------------------------------------------------------------------*/
status_t host_room_new(const struct kernels *open, size_t bytes, size_t most, void **ret, struct err *e) {
    if (bytes > most)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "this system pins no %zu bytes", bytes);
    TRY(open->host_memory_new(open, bytes, ret, e));
    room_enter(host_rooms, HOST_ROOMS, *ret, bytes);
    return ST_OK;
}

void host_room_free(const struct kernels *open, void *at) {
    pthread_mutex_lock(&lock);
    for (int i = 0; at && i < HOST_ROOMS; i++)
        if (host_rooms[i].at == at)
            host_rooms[i] = (struct room){ NULL, 0 };
    pthread_mutex_unlock(&lock);
    open->host_memory_free(open, at);
}

/* The first room in which a byte lies; HOST_ROOMS: none. */
static int host_room_of(const void *p) {
    int i = 0;
    while (i < HOST_ROOMS && !((const char *)p >= (char *)host_rooms[i].at &&
                               (const char *)p < (char *)host_rooms[i].at + host_rooms[i].bytes))
        i++;
    return i;
}

bool host_room_has(const void *p) {
    pthread_mutex_lock(&lock);
    const bool there = host_room_of(p) < HOST_ROOMS;
    pthread_mutex_unlock(&lock);
    return there;
}

bool host_room_begins_before(const void *p) {
    pthread_mutex_lock(&lock);
    const int i = host_room_of(p);
    const bool behind = i < HOST_ROOMS && p != host_rooms[i].at;
    pthread_mutex_unlock(&lock);
    return behind;
}

struct held {
    struct call call;
    const void *host;
};

static status_t held_run(struct call *c, struct err *e) {
    (void)e;
    c->line->clock_ns -= SHUT_MEMORY_CALL_NS; /* to look takes no time */
    if (!host_room_has(((const struct held *)c)->host))
        abort(); /* freed before the device was done with it */
    return ST_OK;
}

bool host_room_hold(struct line *l, const struct kernels *open, const void *host) {
    if (!host_room_has(host))
        return false;
    if (l->captures)
        abort();
    struct held *h = line_call(l, open, sizeof *h, held_run);
    h->host = host;
    return true;
}
