/* JSON of a tracker's client, from outside: numbers as clients write them. */
#ifndef TRACKING_JSON_H
#define TRACKING_JSON_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* NULL: the bytes are no JSON. An integer beyond 64 bits becomes a real. Release with json_decref. */
json_t *json_parse(const char *text, size_t n);
/* A number, or one of the texts "NaN", "Infinity" and "-Infinity"; a boolean is 0 or 1. */
bool json_double(const json_t *value, double *ret);
/* An integer, a real without a fraction, or a text of digits; else, and if value is NULL, `other`. */
int64_t json_int(const json_t *value, int64_t other);
/* The text of a member; "" if it has none. Valid as long as object. */
const char *json_member_text(const json_t *object, const char *name);

#endif
