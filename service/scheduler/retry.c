#include "service/scheduler/retry.h"

int64_t retry_delay_ms(int failures) {
    int64_t delay = RETRY_FIRST_MS;
    for (int i = 1; i < failures && delay < RETRY_MAX_MS; i++)
        delay *= 2;
    return delay < RETRY_MAX_MS ? delay : RETRY_MAX_MS;
}
