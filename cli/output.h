/* Prints messages on stdout in the format of -o, and formats values for tables. */
#ifndef CLI_OUTPUT_H
#define CLI_OUTPUT_H

#include "cli/command.h"
#include "cli/table.h"

#include <google/protobuf/timestamp.pb-c.h>
#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>
#include <stdio.h>

/* With -o json or yaml, prints the whole message and sets *ret_done. */
MUST_CHECK status_t output_message(const struct cli *c, const ProtobufCMessage *msg, bool *ret_done, struct err *e);

/* Prints one message as one line of JSON and flushes stdout, for streams. */
MUST_CHECK status_t output_json_line(const ProtobufCMessage *msg, struct err *e);

/* The columns of a table of messages. add_row: adds the cells of a message. */
struct output_columns {
    const char *heads[TABLE_COLUMNS + 1]; /* terminated by NULL */
    void (*add_row)(struct table *t, const void *message);
};
/* Prints a table of n messages; messages: [n] pointers. */
MUST_CHECK status_t output_table(const struct output_columns *columns, const void *messages, size_t n, struct err *e);
/* Prints a table that the caller has filled. */
MUST_CHECK status_t output_table_print(const struct table *t, struct err *e);
/* Prints the reply of a List call in every format but the table, and sets *ret_done; with -o name, the field `name` of
 * each element. */
MUST_CHECK status_t output_listed(const struct cli *c, const ProtobufCMessage *reply, bool *ret_done, struct err *e);
/* Prints the reply of a List call in any format. */
MUST_CHECK status_t output_list(const struct cli *c, const ProtobufCMessage *reply,
                                const struct output_columns *columns, struct err *e);

/* "3m12s", "2h05m", "4d03h": a duration for a column. ret has 24 bytes. */
void output_duration(int64_t seconds, char ret[24]);
/* "2026-11-21 10:11:04+01:00": in the zone of TZ or else of the system, with "Z" for UTC; "-" for NULL. */
enum { OUTPUT_TIME_BYTES = 32 };
void output_time(const Google__Protobuf__Timestamp *t, char ret[OUTPUT_TIME_BYTES]);
/* The duration from a to b, or to now if b is NULL; "-" if a is NULL. */
void output_between(const Google__Protobuf__Timestamp *a, const Google__Protobuf__Timestamp *b, char ret[24]);
/* "1.2 GiB", the units of a plan. ret has 24 bytes. */
void output_bytes(int64_t bytes, char ret[24]);

/* The last part of "jobs/42". */
const char *output_id(const char *name);
/* An enum's name: "RUNNING"; for a value that this version does not know, its number. Static or thread-local
 * storage. */
const char *output_enum(const ProtobufCEnumDescriptor *desc, int value);

/* Writes a peer's text. Invalid UTF-8 and control characters except newline and tab become '?'. */
void output_text(FILE *f, const char *s);

#endif
