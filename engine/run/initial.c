#include "engine/run/initial.h"

#include "kernels/normal.h"
#include "kernels/philox.h"

#include <assert.h>

/* Separates these random numbers from those of dropout and sampling under the same seed. */
static const uint64_t INITIAL_STREAM = 0x9d2c5680b5026f5aULL;

/* Four numbers of mean 0 and variance 1. */
static void draw4(enum init init, uint64_t key, int number, int64_t block, float ret[4]) {
    uint32_t counter[4] = { (uint32_t)block, (uint32_t)(block >> 32), (uint32_t)number, 0 }, u[4];
    philox4x32_10(counter, key, u);
    if (init == INIT_UNIFORM) {
        for (int i = 0; i < 4; i++)
            ret[i] = 1.7320508f * (((float)(u[i] >> 8) + 0.5f) * 0x1p-23f - 1.0f);
        return;
    }
    normal2(u, ret);
    normal2(u + 2, ret + 2);
}

void initial_parameter(const struct parameter *p, int number, int64_t seed, int64_t first, int64_t count, float *data) {
    const uint64_t key = (uint64_t)seed ^ INITIAL_STREAM;
    const float std = (float)p->init_std, constant = p->init == INIT_ONE ? 1.0f : 0.0f;
    const bool drawn = p->init == INIT_NORMAL || p->init == INIT_UNIFORM;
    assert(first % 4 == 0);
#pragma omp parallel for schedule(static)
    for (int64_t block = 0; block < (count + 3) / 4; block++) {
        float four[4];
        if (drawn)
            draw4(p->init, key, number, first / 4 + block, four);
        for (int64_t i = block * 4; i < count && i < block * 4 + 4; i++)
            data[i] = drawn ? std * four[i % 4] : constant;
    }
}
