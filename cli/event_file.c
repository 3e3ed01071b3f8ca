#include "cli/event_file.h"

#include "base/tfrecord.h"

#include <endian.h>
#include <string.h>
#include <tensorflow/event.pb-c.h>

static status_t append_record(struct bytes *b, const Tensorflow__Event *event, struct err *e) {
    const size_t n = tensorflow__event__get_packed_size(event);
    uint8_t head[TFRECORD_HEAD_BYTES];
    tfrecord_head(n, head);
    TRY(bytes_append(b, head, sizeof head, e));
    TRY(bytes_reserve(b, n, e));
    char *data = b->data + b->len;
    b->len += tensorflow__event__pack(event, (uint8_t *)data);
    const uint32_t checksum = htole32(tfrecord_checksum(data, n));
    return bytes_append(b, &checksum, sizeof checksum, e);
}

static double seconds(int64_t us) { return (double)us / 1e6; }

status_t event_file_begin(struct bytes *b, int64_t time_us, struct err *e) {
    Tensorflow__Event event = TENSORFLOW__EVENT__INIT;
    event.wall_time = seconds(time_us);
    event.what_case = TENSORFLOW__EVENT__WHAT_FILE_VERSION;
    event.file_version = (char *)"brain.Event:2";
    return append_record(b, &event, e);
}

status_t event_file_append(struct bytes *b, const Trainyard__V1__MetricPoints *run, struct err *e) {
    Tensorflow__Summary__Value value = TENSORFLOW__SUMMARY__VALUE__INIT, *values[] = { &value };
    Tensorflow__Summary summary = TENSORFLOW__SUMMARY__INIT;
    Tensorflow__Event event = TENSORFLOW__EVENT__INIT;
    value.tag = run->name;
    value.value_case = TENSORFLOW__SUMMARY__VALUE__VALUE_SIMPLE_VALUE;
    summary.n_value = 1;
    summary.value = values;
    event.what_case = TENSORFLOW__EVENT__WHAT_SUMMARY;
    event.summary = &summary;
    for (size_t i = 0; i < run->n_step && i < run->n_value && i < run->n_time_us; i++) {
        event.wall_time = seconds(run->time_us[i]);
        event.step = run->step[i];
        value.simple_value = (float)run->value[i];
        TRY(append_record(b, &event, e));
    }
    return ST_OK;
}
