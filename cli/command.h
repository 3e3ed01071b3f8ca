/* The table of the client's commands, and the declaration of their arguments.
 *
 * A command is a row: a name, its arguments, a description, an example and a function. Its options are rows too, with
 * the offset of a field in the command's own argument struct; `help` prints these rows and one parser reads them. The
 * function returns a status and a sentence. main prints the sentence and maps the status to an exit code:
 *
 *   0 success   1 failure   2 wrong usage or spec   3 cancelled   4 not found
 *   5 controller unreachable   6 not allowed
 *
 * The program has one thread, except for gRPC's threads. */
#ifndef CLI_COMMAND_H
#define CLI_COMMAND_H

#include "base/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum output_format { OUTPUT_TABLE, OUTPUT_JSON, OUTPUT_YAML, OUTPUT_NAME };

enum exit_code {
    EXIT_DONE = 0,
    EXIT_FAILED = 1,
    EXIT_USAGE = 2,
    EXIT_CANCELLED = 3,
    EXIT_NOT_FOUND = 4,
    EXIT_UNREACHABLE = 5,
    EXIT_NOT_ALLOWED = 6,
};

/* One run of the program. */
struct cli {
    enum output_format output;
    const char *controller;   /* --controller, or NULL */
    const char *context;      /* --context, or NULL */
    enum exit_code exit_code; /* when the command returns ST_OK */
    struct client *client;    /* NULL until a command connects: cli/client.h */
};

enum option_kind {
    OPTION_FLAG, /* bool */
    OPTION_TEXT, /* const char *, NULL when not given */
    OPTION_INT,  /* int64_t, OPTION_ABSENT when not given */
    OPTION_REAL, /* double, NAN when not given */
    OPTION_LIST, /* struct text_list: may be repeated */
};
#define OPTION_ABSENT INT64_MIN

struct text_list {
    const char *items[64];
    size_t n;
};

struct option_row {
    const char *name;  /* "set", without the dashes; NULL ends the table */
    char letter;       /* 0 = none */
    const char *value; /* "KEY.PATH=VALUE" in help; NULL for a flag */
    const char *about; /* one line */
    enum option_kind kind;
    size_t offset;      /* in the command's argument struct */
    const char *preset; /* the default as text; NULL = none */
};

struct command {
    const char *name;
    const char *arguments; /* "JOB [NAME]..." */
    const char *summary;   /* one line */
    const char *details;   /* paragraphs, or NULL */
    const char *example;   /* lines to type */
    const struct option_row *options;
    size_t args_bytes;        /* of the argument struct; at least 1 */
    int min_words, max_words; /* positional arguments */
    bool local;               /* uses no controller and prints no message: of the shared options it has --help only */
    /* args: the filled struct. words: the positional arguments, terminated by NULL. */
    status_t (*run)(struct cli *c, const void *args, char *const words[], struct err *e);
};

/* All commands, in the order of `help`, terminated by NULL. */
extern const struct command *const commands[];

/* One definition in each file of a command group. */
extern const struct command command_up, command_down, command_submit, command_list, command_get, command_events,
    command_watch, command_logs, command_metrics, command_checkpoints, command_checkpoint, command_cancel,
    command_pause, command_resume, command_retry, command_delete, command_executors, command_explain, command_queues,
    command_queue, command_drain, command_undrain, command_validate, command_sample, command_profile, command_plan,
    command_export, command_token, command_audit, command_join, command_secret, command_dashboard, command_artifacts,
    command_import, command_completion, command_sweep, command_status, command_top, command_login, command_context;

/* Reads argv (after the command's name) into args, which has cmd->args_bytes zeroed bytes, and into c's own options
 * (-o, --controller, --context). --utc sets TZ. ret_words points into argv. ret_help: --help was given, and nothing
 * else was checked. */
MUST_CHECK status_t arguments_parse(const struct command *cmd, int argc, char **argv, struct cli *c, void *args,
                                    char *const **ret_words, int *ret_help, struct err *e);

/* Print help pages on stdout. */
void help_print_all(void);
void help_print(const struct command *cmd);

/* The options that every command has beside its own; those of a local command are fewer. */
const struct option_row *arguments_shared(const struct command *cmd);

/* Prints what a shell may offer for the last of n words, which is unfinished (complete.c). table: as `commands`. */
void complete(struct cli *c, const struct command *const table[], int n, char *const words[]);

const struct command *command_find(const char *name); /* NULL when there is none */

#endif
