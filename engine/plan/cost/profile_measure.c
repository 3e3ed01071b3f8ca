/* This machine's CPU, measured on the spot: what plans for `cpu` are costed with. Every figure is the best of a few
 * trials, because other work on the machine only ever slows one down. */
#include "base/clock.h"
#include "engine/plan/cost/profile.h"
#include "kernels/kernels.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/sysinfo.h>
#include <unistd.h>

enum {
    ROWS = 512,
    IN = 768,
    OUT = 1536,
    TRIALS = 7,
    COPY_BYTES = 64 << 20, /* twice that is more than a cache holds */
    WIRE_BYTES = 4 << 20,
    PING_BYTES = 64,
    PINGS = 50,
};

/* Numbers in any precision: pages that no one has written are all one page of zeros, which no memory is as fast as. */
static char *written_memory(size_t n, struct err *e) {
    char *memory = malloc(n);
    if (memory)
        memset(memory, 0x3c, n);
    else
        status_ignore(err_set(e, ST_RESOURCE_EXHAUSTED, "no memory to measure this machine with"));
    return memory;
}

static double seconds_since(int64_t from_ns) { return (double)(clock_mono_ns() - from_ns) * 1e-9; }

static status_t time_products(enum kernels_precision precision, int threads, char *memory, double *ret, struct err *e) {
    CLEANUP(kernels_closep) struct kernels *k = NULL;
    const struct kernels_config config = { .device = "cpu", .threads = threads, .precision = precision };
    struct linear_dims d = { .rows = ROWS, .in = IN, .out = OUT };
    void *x = memory, *w = memory + sizeof(float) * ROWS * IN, *y = memory + sizeof(float) * (ROWS + OUT) * IN;
    TRY(kernels_open(&config, &k, e));
    for (int i = 0; i < TRIALS; i++) {
        int64_t from = clock_mono_ns();
        TRY(k->linear_forward(k, y, NULL, x, w, NULL, &d, e));
        double rate = 2.0 * ROWS * IN * OUT / seconds_since(from);
        if (i && rate > *ret) /* the first one builds what later ones use */
            *ret = rate;
    }
    return ST_OK;
}

/* Bytes read and written by a second, by the threads that the kernels would use. */
static double time_copies(char *memory, int threads) {
    double best = 0;
    size_t part = COPY_BYTES / (size_t)threads;
    for (int i = 0; i < TRIALS; i++) {
        int64_t from = clock_mono_ns();
#pragma omp parallel for num_threads(threads)
        for (int t = 0; t < threads; t++)
            memcpy(memory + COPY_BYTES + (size_t)t * part, memory + (size_t)t * part, part);
        double rate = 2.0 * COPY_BYTES / seconds_since(from);
        best = rate > best ? rate : best;
    }
    return best;
}

/* --- a loopback connection ---*/

static bool read_all(int fd, char *data, size_t n) {
    for (size_t at = 0; at < n;) {
        ssize_t got = recv(fd, data + at, n - at, 0);
        if (got <= 0 && !(got < 0 && errno == EINTR))
            return false;
        at += got > 0 ? (size_t)got : 0;
    }
    return true;
}

static bool write_all(int fd, const char *data, size_t n) {
    for (size_t at = 0; at < n;) {
        ssize_t put = send(fd, data + at, n - at, MSG_NOSIGNAL);
        if (put < 0 && errno != EINTR)
            return false;
        at += put > 0 ? (size_t)put : 0;
    }
    return true;
}

struct echo {
    int fd;
    char *memory;
};

/* Sends pings back, and then one byte after each large message. */
static void *echo_main(void *arg) {
    struct echo *echo = arg;
    bool going = true;
    for (int i = 0; i < PINGS && going; i++)
        going = read_all(echo->fd, echo->memory, PING_BYTES) && write_all(echo->fd, echo->memory, PING_BYTES);
    for (int i = 0; i < TRIALS && going; i++)
        going = read_all(echo->fd, echo->memory, WIRE_BYTES) && write_all(echo->fd, echo->memory, 1);
    return NULL;
}

static bool connect_pair(int ret[2]) {
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t n = sizeof at;
    int on = 1, listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ret[0] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ret[1] = -1;
    bool up = listener >= 0 && ret[0] >= 0 && bind(listener, (struct sockaddr *)&at, n) == 0 &&
              listen(listener, 1) == 0 && getsockname(listener, (struct sockaddr *)&at, &n) == 0 &&
              connect(ret[0], (struct sockaddr *)&at, n) == 0 &&
              (ret[1] = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) >= 0;
    for (int i = 0; i < 2 && up; i++)
        up = setsockopt(ret[i], IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0;
    if (listener >= 0)
        close(listener);
    return up;
}

static bool time_messages(int fd, char *memory, struct plan_link *ret) {
    ret->seconds = 1;
    for (int i = 0; i < PINGS; i++) {
        int64_t from = clock_mono_ns();
        if (!write_all(fd, memory, PING_BYTES) || !read_all(fd, memory, PING_BYTES))
            return false;
        double one_way = seconds_since(from) / 2;
        ret->seconds = one_way < ret->seconds ? one_way : ret->seconds;
    }
    for (int i = 0; i < TRIALS; i++) {
        int64_t from = clock_mono_ns();
        if (!write_all(fd, memory, WIRE_BYTES) || !read_all(fd, memory, 1))
            return false;
        double rate = WIRE_BYTES / seconds_since(from);
        ret->bytes_per_second = rate > ret->bytes_per_second ? rate : ret->bytes_per_second;
    }
    return true;
}

static status_t time_wire(char *memory, struct plan_link *ret, struct err *e) {
    int fd[2] = { -1, -1 };
    bool done = connect_pair(fd);
    struct echo echo = { .fd = fd[1], .memory = memory + COPY_BYTES };
    pthread_t thread;
    if (done && (done = pthread_create(&thread, NULL, echo_main, &echo) == 0)) {
        done = time_messages(fd[0], memory, ret);
        shutdown(fd[0], SHUT_RDWR);
        pthread_join(thread, NULL);
    }
    for (int i = 0; i < 2; i++)
        if (fd[i] >= 0)
            close(fd[i]);
    return done ? ST_OK : err_set(e, ST_UNAVAILABLE, "a loopback connection could not be measured");
}

/* --- */

static status_t measure(int threads, char *memory, struct plan_profile *p, struct err *e) {
    TRY(time_products(KERNELS_FP32, threads, memory, &p->product_flops[DTYPE_F32], e));
    TRY(time_products(KERNELS_BF16, threads, memory, &p->product_flops[DTYPE_BF16], e));
    TRY(time_products(KERNELS_FP16, threads, memory, &p->product_flops[DTYPE_F16], e));
    p->memory_bytes_per_second = time_copies(memory, threads);
    TRY(time_wire(memory, &p->intra_node, e));
    p->inter_node = p->intra_node;
    p->node_ranks = 1 << 20; /* one machine */
    struct sysinfo machine;
    if (sysinfo(&machine) == 0)
        p->memory_bytes = (size_t)machine.totalram * machine.mem_unit;
    return ST_OK;
}

status_t plan_profile_measure_products(enum dtype type, int threads, double *ret, struct err *e) {
    const size_t bytes = sizeof(float) * (ROWS * IN + IN * OUT + ROWS * OUT);
    char *memory = written_memory(bytes, e);
    if (!memory)
        return ST_RESOURCE_EXHAUSTED;
    *ret = 0;
    status_t st = time_products(type == DTYPE_BF16  ? KERNELS_BF16
                                : type == DTYPE_F16 ? KERNELS_FP16
                                                    : KERNELS_FP32,
                                threads, memory, ret, e);
    free(memory);
    return st;
}

status_t plan_profile_measure(int threads, struct plan_profile *ret, struct err *e) {
    struct plan_profile p = { .name = "cpu", .measured = true, .product_reach = 1, .memory_reach = 1 };
    snprintf(p.accelerator, sizeof p.accelerator, "cpu");
    snprintf(p.device, sizeof p.device, "this machine's CPU, %d thread%s a rank", threads, threads == 1 ? "" : "s");
    char *memory = written_memory((size_t)COPY_BYTES * 2, e);
    if (!memory)
        return ST_RESOURCE_EXHAUSTED;
    status_t st = measure(threads, memory, &p, e);
    free(memory);
    if (st == ST_OK)
        *ret = p;
    return st;
}
