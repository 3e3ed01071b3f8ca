/* A TensorBoard event file that a program writes; and the input as one event, so that the fuzzer reaches its parser
 * without a checksum that agrees. */
#include "base/tfrecord.h"
#include "tracking/event_scalars.h"

#include <assert.h>
#include <string.h>

static void add(void *ctx, const char *tag, int64_t step, double wall_time, double value) {
    (void)step, (void)wall_time, (void)value;
    ++*(int64_t *)ctx;
    assert(strlen(tag) < 1 << 18);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    int64_t scalars = 0, others = 0;
    struct tfrecord record;
    for (size_t at = 0; at < n;) {
        const enum tfrecord_found found = tfrecord_next(data + at, n - at, 4096, &record);
        if (found == TFRECORD_WHOLE) {
            assert(record.data >= data + at && record.data + record.n + TFRECORD_TAIL_BYTES <= data + n);
            event_scalars(record.data, record.n, add, &scalars, &others);
        }
        if (found == TFRECORD_PARTIAL || found == TFRECORD_CORRUPT || record.bytes > n - at)
            break;
        assert(record.bytes >= TFRECORD_FRAME_BYTES);
        at += (size_t)record.bytes;
    }
    if (n <= 4096)
        event_scalars(data, n, add, &scalars, &others);
    return 0;
}
