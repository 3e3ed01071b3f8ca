#include "executor/program/metric_lines.h"

#include "base/limits.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { SENTENCE_BYTES = 320, SHOWN = 80 };
#define STEP_MAX (INT64_C(1) << 53) /* as of trackers: POINTS_STEP_MAX */

/* Printable ASCII without quotes and backslashes, as every metric's name. */
static bool is_name(const char *name) {
    const size_t n = strlen(name);
    for (size_t i = 0; i < n; i++)
        if (name[i] <= ' ' || name[i] > '~' || name[i] == '"' || name[i] == '\\')
            return false;
    return n > 0 && n <= LIMIT_METRIC_NAME_BYTES;
}

/* NULL if the row is right; else what is wrong. `name` receives the member that is wrong. */
static const char *row_of(json_t *object, int64_t *ret_step, char *names[], double values[], size_t *ret_n,
                          const char **name) {
    const char *key;
    json_t *value;
    *ret_n = 0;
    *name = "step";
    json_t *step = json_object_get(object, "step");
    if (!json_is_integer(step) || json_integer_value(step) < 0 || json_integer_value(step) > STEP_MAX)
        return "is not an integer from 0 to 2^53";
    *ret_step = json_integer_value(step);
    json_object_foreach(object, key, value) {
        *name = key;
        if (strcmp(key, "step") == 0)
            continue;
        if (!is_name(key))
            return "is no name of a metric: 1 to 64 printable characters without spaces and quotes";
        if (!json_is_number(value))
            return "is not a number";
        if (*ret_n == METRIC_LINE_VALUES)
            return "is one value too many for a line, which has at most 64";
        names[*ret_n] = (char *)(uintptr_t)key;
        values[(*ret_n)++] = json_number_value(value);
    }
    return NULL;
}

static void line_take(const char *line, size_t n, const struct metric_sink *sink) {
    char sentence[SENTENCE_BYTES];
    json_error_t why;
    json_t *object = json_loadb(line, n, JSON_REJECT_DUPLICATES, &why);
    if (!json_is_object(object)) {
        snprintf(sentence, sizeof sentence, "'%.*s': %.120s", n < SHOWN ? (int)n : SHOWN, line,
                 object ? "is no JSON object" : why.text);
        sink->refused(sink->ctx, sentence);
    } else {
        char *names[METRIC_LINE_VALUES];
        double values[METRIC_LINE_VALUES];
        int64_t step = 0;
        size_t n_values;
        const char *name, *wrong = row_of(object, &step, names, values, &n_values, &name);
        if (wrong) {
            snprintf(sentence, sizeof sentence, "'%.*s': %.64s %s", n < SHOWN ? (int)n : SHOWN, line, name, wrong);
            sink->refused(sink->ctx, sentence);
        } else if (n_values > 0) {
            sink->row(sink->ctx, step, names, values, n_values);
        }
    }
    json_decref(object);
}

void metric_lines_feed(struct metric_lines *lines, const char *data, size_t n, const struct metric_sink *sink) {
    for (size_t i = 0; i < n; i++) {
        if (data[i] != '\n') {
            if (lines->n == sizeof lines->line)
                lines->too_long = true;
            else
                lines->line[lines->n++] = data[i];
            continue;
        }
        if (lines->too_long)
            sink->refused(sink->ctx, "a line of metrics is longer than 4096 bytes");
        else if (lines->n > 0)
            line_take(lines->line, lines->n, sink);
        lines->n = 0;
        lines->too_long = false;
    }
}
