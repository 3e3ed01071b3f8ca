/* A peer's bytes as each request of each service: the first byte chooses the method. What is accepted must survive
 * being packed and decoded again, and hold only strings that the checks promise. */
#include "api/rpc/decode.h"
#include "base/utf8.h"

#include <stdlib.h>
#include <string.h>
#include <trainyard/v1/checkpoint.pb-c.h>
#include <trainyard/v1/dispatch.pb-c.h>
#include <trainyard/v1/executor.pb-c.h>
#include <trainyard/v1/job.pb-c.h>
#include <trainyard/v1/log.pb-c.h>
#include <trainyard/v1/metric.pb-c.h>
#include <trainyard/v1/queue.pb-c.h>
#include <trainyard/v1/status.pb-c.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const ProtobufCServiceDescriptor *const services[] = {
    &trainyard__v1__job_service__descriptor,      &trainyard__v1__metric_service__descriptor,
    &trainyard__v1__log_service__descriptor,      &trainyard__v1__checkpoint_service__descriptor,
    &trainyard__v1__executor_service__descriptor, &trainyard__v1__dispatch_service__descriptor,
    &trainyard__v1__queue_service__descriptor,    &trainyard__v1__status_service__descriptor,
};

static const ProtobufCMessageDescriptor *request_of(unsigned choice) {
    unsigned total = 0;
    for (size_t s = 0; s < sizeof services / sizeof services[0]; s++)
        total += services[s]->n_methods;
    choice %= total;
    size_t s = 0;
    for (; choice >= services[s]->n_methods; s++)
        choice -= services[s]->n_methods;
    return services[s]->methods[choice].input;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (n == 0)
        return 0;
    const ProtobufCMessageDescriptor *request = request_of(data[0]);
    struct arena arena, again;
    arena_init(&arena, 1 << 20);
    arena_init(&again, 4 << 20);
    struct err e = { "" };
    ProtobufCMessage *m, *copy;
    if (decode_message(request, data + 1, n - 1, &arena, &m, &e) == ST_OK) {
        size_t packed = protobuf_c_message_get_packed_size(m);
        uint8_t *bytes = malloc(packed + 1);
        if (protobuf_c_message_pack(m, bytes) != packed || decode_message(request, bytes, packed, &again, &copy, &e))
            abort();
        free(bytes);
    } else if (!e.msg[0] || !utf8_valid(e.msg, strlen(e.msg))) {
        abort(); /* a refusal is one sentence, and it travels in a header */
    }
    arena_done(&arena);
    arena_done(&again);
    return 0;
}
