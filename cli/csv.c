#include "cli/csv.h"

#include "api/codec/timestamp.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void csv_number(double value, char ret[CSV_NUMBER]) {
    if (!isfinite(value)) {
        snprintf(ret, CSV_NUMBER, "%s", isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity");
        return;
    }
    for (int digits = 15; digits <= 17; digits++) {
        snprintf(ret, CSV_NUMBER, "%.*g", digits, value);
        if (strtod(ret, NULL) == value)
            return;
    }
}

/* Quotes the text if RFC 4180 requires it, and doubles its quotes. */
static status_t append_field(struct bytes *b, const char *text, struct err *e) {
    if (!text[strcspn(text, ",\"\r\n")])
        return bytes_append(b, text, strlen(text), e);
    TRY(bytes_append(b, "\"", 1, e));
    for (; *text; text++)
        TRY(bytes_append(b, *text == '"' ? "\"\"" : text, *text == '"' ? 2 : 1, e));
    return bytes_append(b, "\"", 1, e);
}

static status_t time_text(int64_t us, char ret[TIMESTAMP_TEXT], struct err *e) {
    Google__Protobuf__Timestamp t = GOOGLE__PROTOBUF__TIMESTAMP__INIT;
    ret[0] = '\0';
    if (us == 0)
        return ST_OK;
    timestamp_of_us(us, &t);
    return timestamp_print(&t, ret, e);
}

status_t csv_append(struct bytes *b, const Trainyard__V1__MetricPoints *run, struct err *e) {
    for (size_t i = 0; i < run->n_step && i < run->n_value && i < run->n_time_us; i++) {
        char time[TIMESTAMP_TEXT], value[CSV_NUMBER];
        TRY(time_text(run->time_us[i], time, e));
        csv_number(run->value[i], value);
        TRY(append_field(b, run->name, e));
        TRY(bytes_printf(b, e, ",%d,%d,%" PRId64 ",%s,%s\r\n", run->rank, run->attempt, run->step[i], time, value));
    }
    return ST_OK;
}
