#include "executor/agent/core/thread_shares.h"

#include <stdbool.h>

void thread_shares_fill(int cores, struct thread_share *shares, size_t n) {
    int left = cores;
    for (size_t i = 0; i < n; i++) {
        shares[i].threads = 1;
        left -= shares[i].ranks;
    }
    /* One turn gives each rank of every attempt one core more. An attempt whose ranks cannot all get one is skipped. */
    for (bool some = true; some;) {
        some = false;
        for (size_t i = 0; i < n; i++) {
            if (shares[i].ranks == 0 || shares[i].ranks > left || shares[i].threads == shares[i].max)
                continue;
            shares[i].threads++;
            left -= shares[i].ranks;
            some = true;
        }
    }
}
