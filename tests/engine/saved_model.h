/* A checkpoint of a small model: one or several ranks of this process write it, and the test compares every element. */
#ifndef TESTS_ENGINE_SAVED_MODEL_H
#define TESTS_ENGINE_SAVED_MODEL_H

#include "base/bytes.h"
#include "engine/checkpoint/tensor.h"
#include "engine/checkpoint/writer.h"

#include <pthread.h>

enum { RANKS_MOST = 4, TENSORS = 8, PIECES_MOST = 320 };

extern const struct checkpoint_tensor MODEL[TENSORS];
extern const double NORMS[3];                 /* the window of the spike detector */
extern const char *const RECORDS[RANKS_MOST]; /* the tuning caches of the ranks' kernels */

/* Writes the segments of a rank into `segments`, at most PIECES_MOST. Returns their number. */
typedef int cut_fn(int rank, int world_size, struct checkpoint_segment *segments);
/* Divides the chunks, in the order of MODEL, into equal shares of the ranks. */
int cut_evenly(int rank, int world_size, struct checkpoint_segment *segments);
extern cut_fn *cut; /* how save cuts; cut_evenly unless a test sets another */
extern status_t (*keep)(void *ctx, int64_t step, struct err *e); /* of the writers; NULL unless a test sets one */

/* The value of element i of a tensor in a checkpoint with this seed. */
float value_of(int tensor, int64_t i, int seed);

struct meeting {
    int world_size;
    pthread_barrier_t met;
    const void *blobs[RANKS_MOST];
    size_t sizes[RANKS_MOST];
};

struct member {
    struct meeting *meeting;
    int rank;
};

/* checkpoint_exchange_fn among the threads of a meeting. */
status_t meet(void *member, const void *mine, size_t n, struct bytes *all, struct err *e);

struct outcome {
    status_t status[RANKS_MOST];
    char message[RANKS_MOST][480];
    char weights[RANKS_MOST][SHA256_HEX];
    int64_t bytes[RANKS_MOST];
    struct member members[RANKS_MOST];
};

/* Writes one checkpoint with this many ranks. Returns rank 0's status. */
status_t save(const char *directory, int world_size, int64_t step, int seed, struct outcome *o);

/* The temporary folder of the tests, and a path in it. */
extern char root[];
struct path {
    char s[200];
};
__attribute__((format(printf, 1, 2))) struct path path_of(const char *format, ...);

/* The test fails unless every element has the value that the seed gives. */
void assert_loads(const char *directory, int seed);

int make_root(void **state);
int remove_root(void **state);

#endif
