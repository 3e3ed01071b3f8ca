/* TensorBoard's event files: TFRecords (base/tfrecord.h) of tensorflow.Event messages. Pure.
 *
 *     event_file_begin(&b, time_us, e);     // the first record of a file
 *     event_file_append(&b, run, e);        // one record per point */
#ifndef CLI_EVENT_FILE_H
#define CLI_EVENT_FILE_H

#include "base/bytes.h"

#include <trainyard/v1/metric.pb-c.h>

MUST_CHECK status_t event_file_begin(struct bytes *b, int64_t time_us, struct err *e);
/* The tag is the metric's name. Values become 32-bit floats, the only scalars of an event. */
MUST_CHECK status_t event_file_append(struct bytes *b, const Trainyard__V1__MetricPoints *run, struct err *e);

#endif
