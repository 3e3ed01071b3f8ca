/* trainyard secret set, list, delete.
 *
 * A value comes from a file, from stdin, or from a terminal, where it is not shown; never from the command line, which
 * other users of the machine can see. It is overwritten after the call. */
#include "base/file.h"
#include "base/limits.h"
#include "cli/client.h"
#include "cli/output.h"

#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <termios.h>
#include <trainyard/v1/secret.pb-c.h>
#include <unistd.h>

static const ProtobufCServiceDescriptor *const secrets = &trainyard__v1__secret_service__descriptor;

enum { PASTED_MS = 100, END_OF_TEXT = 4, KILL_LINE = 21, DELETE = 127 };

struct secret_args {
    const char *file;
};

/* ---- the value ---- */

/* `echo value |` and an editor add one newline, which is no part of a value. */
static void newline_remove(struct bytes *value) {
    if (value->len > 0 && value->data[value->len - 1] == '\n')
        value->len--;
}

/* One more byte than is allowed, so that the controller refuses the rest of a larger input by its size. */
static status_t stdin_read(struct bytes *ret, struct err *e) {
    ssize_t n = 1;
    while (n > 0 && ret->len <= LIMIT_SECRET_BYTES + 1) {
        TRY(bytes_reserve(ret, 4096, e));
        n = read(STDIN_FILENO, ret->data + ret->len, 4096);
        if (n < 0)
            return err_errno(e, "read the value from stdin");
        ret->len += (size_t)n;
    }
    newline_remove(ret);
    return ST_OK;
}

/* Whether more bytes come soon after Enter: they were pasted. */
static bool more_comes(void) {
    struct pollfd p = { .fd = STDIN_FILENO, .events = POLLIN };
    return poll(&p, 1, PASTED_MS) > 0 && (p.revents & POLLIN);
}

/* The last character, or all of them. */
static void erase(struct bytes *value, bool all) {
    while (value->len > 0 && ((uint8_t)value->data[value->len - 1] & 0xc0) == 0x80)
        value->len--;
    value->len = all || value->len == 0 ? 0 : value->len - 1;
}

static status_t line_read(struct bytes *ret, struct err *e) {
    char c = '\0';
    while (c != '\n') {
        const ssize_t n = read(STDIN_FILENO, &c, 1);
        if (n < 0)
            return err_errno(e, "read the value from the terminal");
        if (n == 0 || c == END_OF_TEXT)
            return err_set(e, ST_CANCELLED, "the terminal ended before Enter: nothing was set");
        if (c == '\b' || c == DELETE || c == KILL_LINE) {
            erase(ret, c == KILL_LINE);
            continue;
        }
        if (c != '\n' && ret->len == LIMIT_SECRET_BYTES)
            return err_set(e, ST_INVALID_ARGUMENT, "the value has more than %d bytes", LIMIT_SECRET_BYTES);
        if (c != '\n')
            TRY(bytes_append(ret, &c, 1, e));
    }
    if (more_comes())
        return err_set(e, ST_INVALID_ARGUMENT, "the value has several lines: use --file or stdin");
    return ST_OK;
}

/* Not by lines of the terminal, which cut a value after 4,095 bytes, and of which the shell would get those that follow
 * the first one. What is left of a refused value is dropped. */
static status_t terminal_read(const char *name, struct bytes *ret, struct err *e) {
    struct termios shown, hidden;
    if (tcgetattr(STDIN_FILENO, &shown) < 0)
        return err_errno(e, "hide the value on the terminal");
    hidden = shown;
    hidden.c_lflag &= ~(tcflag_t)(ECHO | ICANON);
    hidden.c_cc[VMIN] = 1;
    hidden.c_cc[VTIME] = 0;
    if (tcsetattr(STDIN_FILENO, TCSAFLUSH, &hidden) < 0)
        return err_errno(e, "hide the value on the terminal");
    fprintf(stderr, "value of %s (not shown; end with Enter): ", name);
    /* The whole, so that no smaller copy of the value is left in memory. */
    status_t st = bytes_reserve(ret, LIMIT_SECRET_BYTES + 2, e);
    if (st == ST_OK)
        st = line_read(ret, e);
    char rest[4096];
    while (st != ST_OK && more_comes() && read(STDIN_FILENO, rest, sizeof rest) > 0)
        ;
    explicit_bzero(rest, sizeof rest);
    tcsetattr(STDIN_FILENO, TCSAFLUSH, &shown);
    fputs("\n", stderr);
    return st;
}

static status_t file_value_read(const char *path, struct bytes *ret, struct err *e) {
    CLEANUP(closep) int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_errno(e, "open '%s'", path);
    TRY(fd_read_file(fd, path, ret, e));
    newline_remove(ret);
    return ST_OK;
}

static status_t value_read(const struct secret_args *args, const char *name, struct bytes *ret, struct err *e) {
    if (args->file)
        return file_value_read(args->file, ret, e);
    return isatty(STDIN_FILENO) ? terminal_read(name, ret, e) : stdin_read(ret, e);
}

/* ---- set, delete, list ---- */

static status_t show(const struct cli *c, const ProtobufCMessage *reply, const char *done_text, struct err *e) {
    const Trainyard__V1__Secret *s = (const Trainyard__V1__Secret *)reply;
    bool done = false;
    status_t st = output_message(c, reply, &done, e);
    if (st == ST_OK && !done && c->output == OUTPUT_NAME)
        printf("%s\n", s->name);
    else if (st == ST_OK && !done)
        printf("%s %s\n", s->name, done_text);
    return st;
}

static status_t set(struct cli *c, const struct secret_args *args, const char *name, struct err *e) {
    Trainyard__V1__SetSecretRequest request = TRAINYARD__V1__SET_SECRET_REQUEST__INIT;
    CLEANUP(message_freep) ProtobufCMessage *reply = NULL;
    struct bytes value;
    bytes_init(&value, LIMIT_SECRET_BYTES + (64 << 10));
    status_t st = value_read(args, name, &value, e);
    request.name = (char *)(uintptr_t)name;
    request.value = (ProtobufCBinaryData){ .data = (uint8_t *)value.data, .len = value.len };
    if (st == ST_OK)
        st = client_call_again(c, secrets, "SetSecret", &request.base, &reply, e);
    if (value.data)
        explicit_bzero(value.data, value.cap);
    bytes_done(&value);
    return st == ST_OK ? show(c, reply, "is set", e) : st;
}

static status_t delete_named(struct cli *c, const char *name, struct err *e) {
    Trainyard__V1__DeleteSecretRequest request = TRAINYARD__V1__DELETE_SECRET_REQUEST__INIT;
    CLEANUP(message_freep) ProtobufCMessage *reply = NULL;
    request.name = (char *)(uintptr_t)name;
    TRY(client_call_again(c, secrets, "DeleteSecret", &request.base, &reply, e));
    return show(c, reply, "is deleted", e);
}

static void add_row(struct table *t, const void *message) {
    const Trainyard__V1__Secret *row = message;
    char created[24], updated[24];
    output_time(row->create_time, created);
    output_time(row->update_time, updated);
    table_cell(t, "%s", output_id(row->name));
    table_cell(t, "%" PRId64, row->bytes);
    table_cell(t, "%s", *row->creator ? row->creator : "-");
    table_cell(t, "%s", created);
    table_cell(t, "%s", updated);
    table_cell(t, "%s", row->key);
}

static const struct output_columns columns = { { "SECRET", "BYTES", "CREATOR", "CREATED", "SET", "KEY" }, add_row };

static status_t list(struct cli *c, struct err *e) {
    Trainyard__V1__ListSecretsRequest request = TRAINYARD__V1__LIST_SECRETS_REQUEST__INIT;
    CLEANUP(message_freep) ProtobufCMessage *all = NULL;
    TRY(client_list(c, secrets, "ListSecrets", &request.base, CLIENT_ALL, &all, e));
    return output_list(c, all, &columns, e);
}

static status_t run_secret(struct cli *c, const void *args_, char *const words[], struct err *e) {
    const struct secret_args *args = args_;
    const char *verb = words[0], *name = words[1];
    const bool sets = strcmp(verb, "set") == 0;
    if (!sets && args->file)
        return err_set(e, ST_INVALID_ARGUMENT, "--file belongs to 'secret set'");
    if (strcmp(verb, "list") == 0 && !name)
        return list(c, e);
    if (sets && name)
        return set(c, args, name, e);
    if (strcmp(verb, "delete") == 0 && name)
        return delete_named(c, name, e);
    return err_set(e, ST_INVALID_ARGUMENT, "usage: trainyard secret set NAME [--file FILE] | list | delete NAME");
}

static const struct option_row secret_options[] = {
    { "file", 'f', "FILE", "set: the value is the content of FILE", OPTION_TEXT, offsetof(struct secret_args, file),
      NULL },
    { 0 },
};

const struct command command_secret = {
    .name = "secret",
    .arguments = "set NAME [--file FILE] | list | delete NAME",
    .summary = "Sets, lists or deletes secrets, which programs get as environment variables.",
    .details =
        "'set' reads the value from FILE or stdin, without one newline at its end, or one line from a terminal, "
        "where\nit is not shown. A spec names the secret: program.secrets: {HF_TOKEN: NAME}. The service stores values "
        "encrypted\nand never shows them again. 'set' with an existing NAME replaces its value, for attempts "
        "that start later.",
    .example = "trainyard secret set HF_TOKEN < token.txt\ntrainyard secret list",
    .options = secret_options,
    .args_bytes = sizeof(struct secret_args),
    .min_words = 1,
    .max_words = 2,
    .run = run_secret,
};
