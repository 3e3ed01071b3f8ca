/* A small model's checkpoint: written by one or several ranks of this process, and judged by its every element. */
#ifndef TESTS_ENGINE_SAVED_MODEL_H
#define TESTS_ENGINE_SAVED_MODEL_H

#include "base/bytes.h"
#include "executor/engine/checkpoint/tensor.h"
#include "executor/engine/checkpoint/writer.h"

#include <pthread.h>

enum { RANKS_MOST = 4, TENSORS = 8, PIECES_MOST = 320 };

extern const struct checkpoint_tensor MODEL[TENSORS];
extern const double NORMS[3];                 /* its spikes' window */
extern const char *const RECORDS[RANKS_MOST]; /* what its ranks' kernels chose */

/* How the tensors are cut: the pieces of a rank (PIECES_MOST); returns how many. */
typedef int cut_fn(int rank, int world_size, struct checkpoint_piece *pieces);
/* The chunks in the order of MODEL, an equal share to each rank. */
int cut_evenly(int rank, int world_size, struct checkpoint_piece *pieces);
extern cut_fn *cut; /* how save cuts; evenly unless a test says otherwise */

/* What an element is in a checkpoint of this seed. */
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

/* checkpoint_exchange_fn over a member's meeting. */
status_t meet(void *member, const void *mine, size_t n, struct bytes *all, struct err *e);

struct outcome {
    status_t status[RANKS_MOST];
    char message[RANKS_MOST][480];
    char weights[RANKS_MOST][SHA256_HEX];
    int64_t bytes[RANKS_MOST];
    struct member members[RANKS_MOST];
};

/* Writes one checkpoint with this many ranks; returns rank 0's status. */
status_t save(const char *directory, int world_size, int64_t step, int seed, struct outcome *o);

/* The tests' own folder, and a path in it. */
extern char root[];
struct path {
    char s[200];
};
__attribute__((format(printf, 1, 2))) struct path path_of(const char *format, ...);

/* Every element is what the seed says, or the test fails. */
void assert_loads(const char *directory, int seed);

int make_root(void **state);
int remove_root(void **state);

#endif
