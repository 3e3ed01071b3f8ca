/* Answers on stdout, in the format that -o asks for, and small words that tables share. */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include "cli/command.h"
#include "cli/table.h"

#include <google/protobuf/timestamp.pb-c.h>
#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stdio.h>

/* -o json and yaml: the whole message; true when it was one of these and has been printed. */
MUST_CHECK status_t output_message(const struct cli *c, const ProtobufCMessage *msg, bool *ret_done, struct err *e);

/* One message as one line of JSON, flushed: streams. */
MUST_CHECK status_t output_json_line(const ProtobufCMessage *msg, struct err *e);

MUST_CHECK status_t output_table(const struct table *t, struct err *e);

/* "3m12s", "2h05m", "4d03h": a duration for a column. ret has 24 bytes. */
void output_duration(int64_t seconds, char ret[24]);
/* "2026-11-21 10:11:04" in UTC, "-" when there is none. ret has 24 bytes. */
void output_time(const Google__Protobuf__Timestamp *t, char ret[24]);
/* From a to b, or to now when b is NULL; "-" without a. */
void output_between(const Google__Protobuf__Timestamp *a, const Google__Protobuf__Timestamp *b, char ret[24]);
/* "1.2 GiB", the units of a plan. ret has 24 bytes. */
void output_bytes(int64_t bytes, char ret[24]);

/* The last part of "jobs/42". */
const char *output_id(const char *name);
/* An enum's name: "RUNNING"; its number for one that this version does not know. Static or thread-local storage. */
const char *output_enum(const ProtobufCEnumDescriptor *desc, int value);

/* Writes a peer's text; what is not UTF-8, and control characters but newline and tab, as '?'. */
void output_text(FILE *f, const char *s);

#endif
