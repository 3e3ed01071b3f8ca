#include "service/scheduler/retry.h"

static int64_t delay_up_to(int64_t max_ms, int failures) {
    int64_t delay = RETRY_FIRST_MS;
    for (int i = 1; i < failures && delay < max_ms; i++)
        delay *= 2;
    return delay < max_ms ? delay : max_ms;
}

int64_t retry_delay_ms(int failures) { return delay_up_to(RETRY_MAX_MS, failures); }
int64_t retry_no_order_delay_ms(int failures) { return delay_up_to(RETRY_NO_ORDER_MAX_MS, failures); }
