/* collective_reduce_ordered over Gloo's transport between processes on this host:
 *
 *     bench_collective WORLD_SIZE          prints "bytes microseconds" lines: the median over the calls of rank 0
 *
 * bench/collective_gloo.cc is its peer, Gloo's own all-reduce; bench/collective.py runs both. */
#include "tests/engine/gang.h"

#include <stdio.h>

enum { SMALLEST = 4 << 10, LARGEST = 64 << 20, CALLS_MOST = 300 };

static int by_value(const void *a, const void *b) {
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static int measure(struct gang *gang, int rank, struct collective *c) {
    (void)gang;
    const struct collective_group world = collective_world(c);
    struct err e = { "" };
    float *x = calloc(LARGEST / sizeof *x, sizeof *x);
    for (size_t bytes = SMALLEST; bytes <= LARGEST; bytes *= 4) {
        int calls = (int)((size_t)(256 << 20) / bytes);
        calls = calls > CALLS_MOST ? CALLS_MOST : calls < 8 ? 8 : calls;
        int64_t times[CALLS_MOST], cut[GANG_RANKS + 1];
        for (int j = 0; j <= world.count; j++)
            cut[j] = (int64_t)(bytes / sizeof *x) * j / world.count;
        for (int i = -2; i < calls; i++) {
            if (collective_barrier(c, COLLECTIVE_CONTROL, &e) != ST_OK)
                return 1;
            int64_t begun = clock_mono_ns();
            if (collective_reduce_ordered(c, COLLECTIVE_DATA, &world, x, cut, &e) != ST_OK)
                return 1;
            if (i >= 0)
                times[i] = clock_mono_ns() - begun;
        }
        qsort(times, (size_t)calls, sizeof *times, by_value);
        if (rank == 0) {
            printf("%zu %.1f\n", bytes, (double)times[calls / 2] / 1e3);
            fflush(stdout);
        }
    }
    free(x);
    return 0;
}

int main(int argc, char **argv) {
    int world_size = argc == 2 ? atoi(argv[1]) : 0;
    if (world_size < 2 || world_size > GANG_RANKS) {
        fprintf(stderr, "bench_collective WORLD_SIZE (2, 4 or 8)\n");
        return 2;
    }
    return gang_end(gang_start(world_size, 60000, measure, NULL)) != 0;
}
