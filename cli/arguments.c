/* Parses a command's options and prints its help, both from the rows that the command declares.
 *
 * The command's rows and the shared rows (-o, --controller, ...) become one table for getopt_long(3). Row i has the
 * code CODE_FIRST + i, so that a code leads to its row, and the row to the field that gets the value: its offset in the
 * argument struct of the command, or in `struct shared`. Every field gets its default first; parsing then overwrites
 * the defaults. getopt_long moves the positional arguments behind the options, where they are counted. --help ends the
 * parsing before anything else is checked. */
#include "cli/command.h"
#include "cli/nearest.h"

#include <ctype.h>
#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* More options than any command has, including the shared ones. */
enum { MAX_OPTIONS = 24, CODE_FIRST = 256, LEFT_COLUMN = 30, HELP_COLUMNS = 100 };

struct shared {
    const char *output, *controller, *context;
    bool utc, help;
};

/* A local command has the last one only. */
static const struct option_row shared_options[] = {
    { "output", 'o', "FORMAT", "table, json, yaml or name", OPTION_TEXT, offsetof(struct shared, output), "table" },
    { "controller", 0, "ADDR", "unix:/path or host:port of the controller", OPTION_TEXT,
      offsetof(struct shared, controller), NULL },
    { "context", 0, "CONTEXT", "the controller of this login (see 'trainyard help context')", OPTION_TEXT,
      offsetof(struct shared, context), NULL },
    { "utc", 0, NULL, "print times in UTC instead of the zone of TZ or of this machine", OPTION_FLAG,
      offsetof(struct shared, utc), NULL },
    { "help", 'h', NULL, "this page", OPTION_FLAG, offsetof(struct shared, help), NULL },
    { 0 },
};

const struct option_row *arguments_shared(const struct command *cmd) { return shared_options + (cmd->local ? 4 : 0); }

static status_t set_int(const struct option_row *o, const char *text, int64_t *at, struct err *e) {
    char *end;
    errno = 0;
    long long value = strtoll(text, &end, 10);
    if (errno || *end || end == text || value == OPTION_ABSENT)
        return err_set(e, ST_INVALID_ARGUMENT, "--%s: expected an integer, found '%s'", o->name, text);
    *at = value;
    return ST_OK;
}

static status_t set_real(const struct option_row *o, const char *text, double *at, struct err *e) {
    char *end;
    double value = strtod(text, &end);
    if (*end || end == text || !isfinite(value))
        return err_set(e, ST_INVALID_ARGUMENT, "--%s: expected a number, found '%s'", o->name, text);
    *at = value;
    return ST_OK;
}

static status_t set_option(const struct option_row *o, void *args, const char *text, struct err *e) {
    void *at = (char *)args + o->offset;
    switch (o->kind) {
    case OPTION_FLAG: *(bool *)at = true; return ST_OK;
    case OPTION_TEXT: *(const char **)at = text; return ST_OK;
    case OPTION_INT: return set_int(o, text, at, e);
    case OPTION_REAL: return set_real(o, text, at, e);
    case OPTION_LIST: {
        struct text_list *list = at;
        if (list->n == sizeof list->items / sizeof *list->items)
            return err_set(e, ST_INVALID_ARGUMENT, "--%s: given more than %zu times", o->name, list->n);
        list->items[list->n++] = text;
        return ST_OK;
    }
    }
    return ST_OK;
}

static status_t preset(const struct option_row *o, void *args, struct err *e) {
    if (o->preset)
        return set_option(o, args, o->preset, e);
    if (o->kind == OPTION_INT)
        *(int64_t *)((char *)args + o->offset) = OPTION_ABSENT;
    if (o->kind == OPTION_REAL)
        *(double *)((char *)args + o->offset) = NAN;
    return ST_OK;
}

/* The rows of a command and the shared rows in the form of getopt_long: row i has the code CODE_FIRST + i. */
struct getopt_tables {
    const struct option_row *rows[MAX_OPTIONS];
    void *args[MAX_OPTIONS];
    struct option longs[MAX_OPTIONS + 1];
    char letters[2 * MAX_OPTIONS + 2];
    int n;
};

static status_t add_rows(struct getopt_tables *t, const struct option_row *rows, void *args, struct err *e) {
    for (; rows && rows->name && t->n < MAX_OPTIONS; rows++) {
        int i = t->n++;
        t->rows[i] = rows;
        t->args[i] = args;
        t->longs[i] = (struct option){ rows->name, rows->value ? required_argument : no_argument, NULL,
                                       CODE_FIRST + i };
        if (rows->letter) {
            size_t used = strlen(t->letters);
            t->letters[used++] = rows->letter;
            if (rows->value)
                t->letters[used++] = ':';
        }
        TRY(preset(rows, args, e));
    }
    return ST_OK;
}

static int row_of(const struct getopt_tables *t, int code) {
    if (code >= CODE_FIRST)
        return code - CODE_FIRST;
    for (int i = 0; i < t->n; i++)
        if (t->rows[i]->letter == code)
            return i;
    return -1;
}

static status_t no_option(const struct command *cmd, const struct getopt_tables *t, const char *given, struct err *e) {
    const char *names[MAX_OPTIONS], *meant = NULL;
    char word[32];
    size_t n = 0;
    for (int i = 0; i < t->n; i++)
        if (t->rows[i]->about) /* others are internal */
            names[n++] = t->rows[i]->name;
    snprintf(word, sizeof word, "%.*s", (int)strcspn(given + strspn(given, "-"), "="), given + strspn(given, "-"));
    if (strncmp(given, "--", 2) == 0)
        meant = nearest_word(word, names, n);
    return err_set(e, ST_INVALID_ARGUMENT, "%s has no option %s%s%s%s; see 'trainyard help %s'", cmd->name, given,
                   meant ? ": '--" : "", meant ? meant : "", meant ? "' may be meant" : "", cmd->name);
}

static status_t parse_options(const struct command *cmd, struct getopt_tables *t, int argc, char **argv,
                              struct err *e) {
    opterr = 0;
    optind = 0; /* GNU extension: resets getopt's state */
    for (int code; (code = getopt_long(argc, argv, t->letters, t->longs, NULL)) != -1;) {
        const char *given = argv[optind - 1];
        if (code == ':')
            return err_set(e, ST_INVALID_ARGUMENT, "%s needs a value; see 'trainyard help %s'", given, cmd->name);
        int i = code == '?' ? -1 : row_of(t, code);
        if (i < 0)
            return no_option(cmd, t, given, e);
        TRY(set_option(t->rows[i], t->args[i], optarg, e));
    }
    return ST_OK;
}

static status_t parse_output(const char *text, enum output_format *ret, struct err *e) {
    static const char *const names[] = { "table", "json", "yaml", "name" };
    for (size_t i = 0; i < 4; i++)
        if (strcmp(text, names[i]) == 0) {
            *ret = (enum output_format)i;
            return ST_OK;
        }
    return err_set(e, ST_INVALID_ARGUMENT, "--output: '%s' is not one of: table, json, yaml, name", text);
}

status_t arguments_parse(const struct command *cmd, int argc, char **argv, struct cli *c, void *args,
                         char *const **ret_words, int *ret_help, struct err *e) {
    struct getopt_tables t = { .n = 0, .letters = ":" };
    struct shared shared = { .output = "table" };
    TRY(add_rows(&t, cmd->options, args, e));
    TRY(add_rows(&t, arguments_shared(cmd), &shared, e));
    TRY(parse_options(cmd, &t, argc, argv, e));
    *ret_help = shared.help;
    if (shared.help)
        return ST_OK;
    TRY(parse_output(shared.output, &c->output, e));
    c->controller = shared.controller;
    c->context = shared.context;
    if (shared.utc) {
        setenv("TZ", "UTC0", 1);
        tzset();
    }
    int n = argc - optind;
    if (n < cmd->min_words || n > cmd->max_words)
        return err_set(e, ST_INVALID_ARGUMENT, "usage: trainyard %s%s%s", cmd->name, *cmd->arguments ? " " : "",
                       cmd->arguments);
    *ret_words = argv + optind;
    return ST_OK;
}

/* Prints the words of n bytes of text in lines of at most HELP_COLUMNS. `used` columns of the first line are taken, and
 * the others begin with `indent` spaces. */
static void print_words(const char *text, size_t n, size_t used, size_t indent) {
    const char *const end = text + n;
    for (bool first = true;; first = false) {
        text += strspn(text, " \n");
        if (text >= end)
            break;
        const size_t word = strcspn(text, " \n");
        if (!first && used + 1 + word > HELP_COLUMNS) {
            printf("\n%*s", (int)indent, "");
            used = indent;
        } else if (!first) {
            putchar(' ');
            used++;
        }
        printf("%.*s", (int)word, text);
        used += word;
        text += word;
    }
    putchar('\n');
}

/* Paragraphs are separated by empty lines. */
static void print_paragraphs(const char *text) {
    while (*text) {
        const char *end = strstr(text, "\n\n");
        const size_t n = end ? (size_t)(end - text) : strlen(text);
        putchar('\n');
        print_words(text, n, 0, 0);
        text += n + (end ? 2 : 0);
    }
}

static void print_row(const struct option_row *o) {
    char left[64], text[512];
    snprintf(left, sizeof left, "%s%c%s --%s%s%s", o->letter ? "-" : " ", o->letter ? o->letter : ' ',
             o->letter ? "," : " ", o->name, o->value ? " " : "", o->value ? o->value : "");
    snprintf(text, sizeof text, "%s%s%s%s", o->about, o->preset ? " (default " : "", o->preset ? o->preset : "",
             o->preset ? ")" : "");
    printf("  %-*s", LEFT_COLUMN, left);
    if (strlen(left) >= LEFT_COLUMN)
        printf("\n  %*s", LEFT_COLUMN, "");
    putchar(' ');
    print_words(text, strlen(text), LEFT_COLUMN + 3, LEFT_COLUMN + 3);
}

static void print_rows(const struct option_row *o) {
    for (; o && o->name; o++)
        if (o->about) /* others are internal */
            print_row(o);
}

void help_print(const struct command *cmd) {
    char usage[600];
    snprintf(usage, sizeof usage, "trainyard %s%s%s", cmd->name, *cmd->arguments ? " " : "", cmd->arguments);
    print_words(usage, strlen(usage), 0, 4);
    print_paragraphs(cmd->summary);
    if (cmd->details)
        print_paragraphs(cmd->details);
    if (strncmp(cmd->arguments, "JOB", 3) == 0)
        printf("\nJOB is the number of a job, or a name: then it is the newest job of that name.\n");
    printf("\nOptions\n");
    print_rows(cmd->options);
    print_rows(arguments_shared(cmd));
    printf("\nExample\n");
    for (const char *line = cmd->example; *line;) {
        size_t n = strcspn(line, "\n");
        printf("  %.*s\n", (int)n, line);
        line += n + (line[n] == '\n');
    }
}
