#include "service/store/metric_times.h"

size_t times_pack(const int32_t *ms, size_t n, uint8_t *ret) {
    uint8_t *at = ret;
    int64_t last = 0;
    for (size_t i = 0; i < n; i++) {
        int64_t d = ms[i] - last;
        uint64_t v = d < 0 ? (uint64_t)(-d) * 2 - 1 : (uint64_t)d * 2;
        last = ms[i];
        for (; v >= 128; v >>= 7)
            *at++ = (uint8_t)(v | 128);
        *at++ = (uint8_t)v;
    }
    return (size_t)(at - ret);
}

void times_unpack(const uint8_t *bytes, size_t len, size_t n, int32_t *ret_ms) {
    size_t at = 0;
    int64_t ms = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t v = 0;
        for (unsigned shift = 0; at < len && shift < 7 * TIMES_POINT_BYTES; shift += 7) {
            v |= (uint64_t)(bytes[at] & 127) << shift;
            if (bytes[at++] < 128)
                break;
        }
        ms += v % 2 ? -(int64_t)(v / 2) - 1 : (int64_t)(v / 2);
        ret_ms[i] = ms > INT32_MAX || ms < INT32_MIN ? 0 : (int32_t)ms;
    }
}
