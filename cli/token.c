/* trainyard token create, list, revoke.
 *
 * The first word selects the operation, the second is the token's name. `create` prints the secret alone on stdout, so
 * that a redirection stores it without showing it on a terminal; everything else goes to stderr. --role and --days are
 * refused for other operations, so that a user does not believe that they changed an existing token. */
#include "cli/client.h"
#include "cli/output.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <trainyard/v1/token.pb-c.h>

static const ProtobufCServiceDescriptor *const tokens = &trainyard__v1__token_service__descriptor;

struct token_args {
    const char *role;
    int64_t days;
    bool join, shared;
    const char *expires, *project;
};

enum { JOIN_EXPIRES_S = 3600 };

static const char *role_of(const Trainyard__V1__Token *t) {
    return output_enum(&trainyard__v1__role__descriptor, (int)t->role);
}

static const char *state_of(const Trainyard__V1__Token *t) {
    return output_enum(&trainyard__v1__token__state__descriptor, (int)t->state);
}

static status_t read_role(const char *text, Trainyard__V1__Role *ret, struct err *e) {
    char upper[16] = "";
    for (size_t i = 0; text && text[i] && i + 1 < sizeof upper; i++)
        upper[i] = (char)toupper((unsigned char)text[i]);
    const ProtobufCEnumValue *v = protobuf_c_enum_descriptor_get_value_by_name(&trainyard__v1__role__descriptor, upper);
    if (!v || v->value == TRAINYARD__V1__ROLE__ROLE_UNSPECIFIED)
        return err_set(e, ST_INVALID_ARGUMENT, "--role must be VIEWER, USER, ADMIN or EXECUTOR");
    *ret = (Trainyard__V1__Role)v->value;
    return ST_OK;
}

/* "90m", "1h" or "7d". The controller checks the range. */
static status_t read_duration(const char *text, int64_t *ret_s, struct err *e) {
    char *end;
    const long n = strtol(text, &end, 10);
    const int64_t unit_s = *end == 'm' ? 60 : *end == 'h' ? 3600 : *end == 'd' ? 86400 : 0;
    if (end == text || !unit_s || end[1] || n < 1 || n > 100000)
        return err_set(e, ST_INVALID_ARGUMENT, "--expires: '%s' is no time such as 30m, 1h or 2d", text);
    *ret_s = n * unit_s;
    return ST_OK;
}

/* Prints the secret alone on stdout, so that a redirection stores it without showing it. */
static status_t show_created(const struct cli *c, const Trainyard__V1__CreateTokenResponse *made, struct err *e) {
    bool done = false;
    char until[OUTPUT_TIME_BYTES];
    TRY(output_message(c, &made->base, &done, e));
    if (done)
        return ST_OK;
    output_time(made->token->expire_time, until);
    fprintf(stderr, "%s %s, %s%s; its secret is not shown again:\n", made->token->name, role_of(made->token),
            made->token->expire_time ? "until " : "without expiry", made->token->expire_time ? until : "");
    const char *secret = *made->join ? made->join : made->secret;
    printf("%s\n", c->output == OUTPUT_NAME ? made->token->name : secret);
    return ST_OK;
}

static status_t create(struct cli *c, const struct token_args *args, const char *name, struct err *e) {
    Trainyard__V1__CreateTokenRequest request = TRAINYARD__V1__CREATE_TOKEN_REQUEST__INIT;
    CLEANUP(message_freep) ProtobufCMessage *reply = NULL;
    if (args->join && (args->role || args->days != OPTION_ABSENT || args->shared || args->project))
        return err_set(e, ST_INVALID_ARGUMENT,
                       "--role, --days, --shared and --project do not go with --join, which has --expires");
    if (args->expires && !args->join)
        return err_set(e, ST_INVALID_ARGUMENT, "--expires belongs to --join; other tokens have --days");
    if (args->join)
        request.role = TRAINYARD__V1__ROLE__JOIN;
    else
        TRY(read_role(args->role, &request.role, e));
    if (args->days != OPTION_ABSENT && (args->days < 1 || args->days > 36500))
        return err_set(e, ST_INVALID_ARGUMENT, "--days: %" PRId64 " is not from 1 to 36500", args->days);
    request.name = (char *)name;
    request.shared = args->shared;
    if (args->project)
        request.project = (char *)(uintptr_t)args->project;
    request.ttl_seconds = args->join ? JOIN_EXPIRES_S : args->days == OPTION_ABSENT ? 0 : args->days * 86400;
    if (args->expires)
        TRY(read_duration(args->expires, &request.ttl_seconds, e));
    TRY(client_call(c, tokens, "CreateToken", &request.base, &reply, e));
    return show_created(c, (const Trainyard__V1__CreateTokenResponse *)reply, e);
}

static status_t revoke_named(struct cli *c, const char *name, struct err *e) {
    Trainyard__V1__RevokeTokenRequest request = TRAINYARD__V1__REVOKE_TOKEN_REQUEST__INIT;
    CLEANUP(message_freep) ProtobufCMessage *reply = NULL;
    bool done = false;
    request.name = (char *)name;
    TRY(client_call_again(c, tokens, "RevokeToken", &request.base, &reply, e));
    const Trainyard__V1__Token *t = (const Trainyard__V1__Token *)reply;
    status_t st = output_message(c, reply, &done, e);
    if (st == ST_OK && !done)
        printf("%s%s%s\n", t->name, c->output == OUTPUT_NAME ? "" : " ", c->output == OUTPUT_NAME ? "" : state_of(t));
    return st;
}

static void add_row(struct table *t, const void *message) {
    const Trainyard__V1__Token *row = message;
    char created[OUTPUT_TIME_BYTES], expires[OUTPUT_TIME_BYTES], revoked[OUTPUT_TIME_BYTES];
    output_time(row->create_time, created);
    output_time(row->expire_time, expires);
    output_time(row->revoke_time, revoked);
    table_cell(t, "%s", output_id(row->name));
    table_cell(t, "%s", role_of(row));
    table_cell(t, "%s", state_of(row));
    table_cell(t, "%s", created);
    table_cell(t, "%s", expires);
    table_cell(t, "%s", revoked);
    table_cell(t, "%s", *row->project ? row->project : "-");
    table_cell(t, "%s", row->shared ? "any" : *row->executor ? output_id(row->executor) : "-");
}

static const struct output_columns columns = {
    { "TOKEN", "ROLE", "STATE", "CREATED", "EXPIRES", "REVOKED", "PROJECT", "EXECUTOR" }, add_row
};

static status_t list(struct cli *c, struct err *e) {
    Trainyard__V1__ListTokensRequest request = TRAINYARD__V1__LIST_TOKENS_REQUEST__INIT;
    CLEANUP(message_freep) ProtobufCMessage *all = NULL;
    TRY(client_list(c, tokens, "ListTokens", &request.base, CLIENT_ALL, &all, e));
    return output_list(c, all, &columns, e);
}

static status_t run_token(struct cli *c, const void *args_, char *const words[], struct err *e) {
    const struct token_args *args = args_;
    const char *verb = words[0], *name = words[1];
    bool creates = strcmp(verb, "create") == 0;
    if (!creates &&
        (args->role || args->days != OPTION_ABSENT || args->join || args->shared || args->expires || args->project))
        return err_set(e, ST_INVALID_ARGUMENT,
                       "--role, --days, --shared, --project, --join and --expires belong to 'token create'");
    if (strcmp(verb, "list") == 0 && !name)
        return list(c, e);
    if (creates && name)
        return create(c, args, name, e);
    if (strcmp(verb, "revoke") == 0 && name)
        return revoke_named(c, name, e);
    return err_set(e, ST_INVALID_ARGUMENT,
                   "usage: trainyard token create NAME --role ROLE | create NAME --join | list | revoke NAME");
}

static const struct option_row token_options[] = {
    { "role", 'r', "ROLE", "create: VIEWER, USER, ADMIN or EXECUTOR", OPTION_TEXT, offsetof(struct token_args, role),
      NULL },
    { "days", 'd', "N", "create: the token expires after N days; default: never", OPTION_INT,
      offsetof(struct token_args, days), NULL },
    { "shared", 0, NULL, "create --role EXECUTOR: any executors may attach with the token, not only the first one",
      OPTION_FLAG, offsetof(struct token_args, shared), NULL },
    { "project", 0, "PROJECT", "create --role VIEWER or USER: the token is for the jobs of this project only",
      OPTION_TEXT, offsetof(struct token_args, project), NULL },
    { "join", 0, NULL, "create: prints a join token for 'trainyard join' on the new host NAME", OPTION_FLAG,
      offsetof(struct token_args, join), NULL },
    { "expires", 0, "TIME", "create --join: the join token expires after TIME, 7d at most; default: 1h", OPTION_TEXT,
      offsetof(struct token_args, expires), NULL },
    { 0 },
};

const struct command command_token = {
    .name = "token",
    .arguments = "create NAME --role ROLE [--days N] [--shared] [--project PROJECT] | create NAME --join "
                 "[--expires TIME] | list | revoke NAME",
    .summary = "Creates, lists or revokes tokens, with which others may call the controller.",
    .details =
        "'create' prints the secret of the token once. A caller passes the secret in TRAINYARD_TOKEN, or in the file\n"
        "that TRAINYARD_TOKEN_FILE names, and may then do what the role allows. VIEWER reads; USER also submits,\n"
        "changes and deletes jobs; ADMIN also manages hosts and tokens; EXECUTOR is for trainyard-executor only, and\n"
        "its NAME must be a name in the certificate of its host. An EXECUTOR token speaks for the first executor that\n"
        "attaches with it, and for no other, unless it is --shared. A token with --project reads and changes the\n"
        "jobs of that project only, and the jobs that it submits belong to that project. A revoked token is refused\n"
        "within five seconds, and its streams end.",
    .example = "umask 077; trainyard token create ci --role USER --days 90 > ci.token\ntrainyard token revoke ci",
    .options = token_options,
    .args_bytes = sizeof(struct token_args),
    .min_words = 1,
    .max_words = 2,
    .run = run_token,
};
