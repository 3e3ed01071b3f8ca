/* trainyard secret set, list, delete.
 *
 * A value comes from a file, from stdin, or from a terminal; never from the command line, which other users of the
 * machine can see. It is overwritten after the call. */
#include "base/limits.h"
#include "cli/client.h"
#include "cli/output.h"
#include "cli/secret_value.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <trainyard/v1/secret.pb-c.h>
#include <unistd.h>

static const ProtobufCServiceDescriptor *const secrets = &trainyard__v1__secret_service__descriptor;

struct secret_args {
    const char *file;
};

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
    status_t st = secret_value_read(args->file, "value of ", name, &value, e);
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
    char created[OUTPUT_TIME_BYTES], updated[OUTPUT_TIME_BYTES];
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
