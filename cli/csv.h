/* Points as CSV (RFC 4180). Pure. */
#ifndef CLI_CSV_H
#define CLI_CSV_H

#include "base/bytes.h"

#include <trainyard/v1/metric.pb-c.h>

#define CSV_HEADER "metric,rank,attempt,step,time,value\r\n"

/* Enough bytes for any number that csv_number writes. */
enum { CSV_NUMBER = 32 };

/* The shortest of 15 to 17 digits that reads back as the same double; NaN, Infinity and -Infinity by name. */
void csv_number(double value, char ret[CSV_NUMBER]);
/* Appends one line per point. The time is RFC 3339 in UTC, or empty if unknown. */
MUST_CHECK status_t csv_append(struct bytes *b, const Trainyard__V1__MetricPoints *run, struct err *e);

#endif
