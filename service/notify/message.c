#include "service/notify/message.h"

#include "api/codec/text.h"

#include <stdio.h>
#include <string.h>
#include <trainyard/v1/notification.pb-c.h>

const char *notify_event_name(const struct store_notification *n) {
    return strcmp(n->kind, "state_changed") == 0 ? store_job_state_name(n->state) : n->kind;
}

status_t notify_message_write(const struct store_notification *n, struct bytes *ret, struct err *e) {
    Trainyard__V1__Notification m = TRAINYARD__V1__NOTIFICATION__INIT;
    Google__Protobuf__Timestamp time = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
    char job[32] = "", executor[96] = "";
    if (n->job)
        snprintf(job, sizeof job, "jobs/%lld", (long long)n->job);
    if (n->executor[0])
        snprintf(executor, sizeof executor, "executors/%.80s", n->executor);
    time.seconds = n->time_us / 1000000;
    time.nanos = (int32_t)(n->time_us % 1000000) * 1000;
    m.delivery = (char *)(uintptr_t)n->delivery;
    m.event = (char *)(uintptr_t)notify_event_name(n);
    m.time = &time;
    m.job = job;
    m.job_name = (char *)(uintptr_t)n->job_name;
    m.state = (char *)(uintptr_t)(n->job ? store_job_state_name(n->state) : "");
    m.attempt = n->attempt;
    m.executor = executor;
    m.message = (char *)(uintptr_t)n->message;
    return codec_print_json(&m.base, 0, ret, e);
}
