/* trainyard login, context.
 *
 * `login` calls the controller before it stores anything. The user then learns at once if the address, the certificate
 * or the token is wrong. `login` reads a token from a file, from stdin, or from a terminal without showing it. It takes
 * no token from the command line, because other users can see that. */
#include "api/rpc/access.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/limits.h"
#include "cli/client.h"
#include "cli/context/context.h"
#include "cli/output.h"
#include "cli/secret_value.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <trainyard/v1/status.pb-c.h>

struct login_args {
    const char *ca, *cert, *key, *token_file;
};

/* ---- login ---- */

/* Sets *ret, which is the empty default, to the absolute path of a file that must exist. */
static status_t absolute(const char *option, const char *path, char **ret, struct err *e) {
    char *full = path ? realpath(path, NULL) : NULL;
    if (path && !full)
        return err_errno(e, "--%s: '%.200s'", option, path);
    *ret = full ? full : *ret;
    return ST_OK;
}

static status_t read_token(const struct login_args *args, const char *name, char **ret, struct err *e) {
    CLEANUP(bytes_done) struct bytes token;
    bytes_init(&token, LIMIT_SECRET_BYTES + (64 << 10));
    const char *given = getenv("TRAINYARD_TOKEN");
    if (!args->token_file && given && *given) {
        *ret = alloc_copy_text(given);
        return ST_OK;
    }
    if (!args->token_file && !args->ca)
        return ST_OK; /* a call that does not use TLS needs no token, or the controller says so */
    TRY(secret_value_read(args->token_file, "the token for ", name, &token, e));
    if (token.len == 0 || memchr(token.data, '\0', token.len) || memchr(token.data, '\n', token.len))
        return err_set(e, ST_INVALID_ARGUMENT, "login: the token is empty or has several lines");
    *ret = alloc_format("%.*s", (int)token.len, token.data);
    explicit_bzero(token.data, token.len);
    return ST_OK;
}

static status_t make_context(const struct login_args *args, char *const words[], Trainyard__Cli__Context **ret,
                             struct err *e) {
    CLEANUP(message_freep) Trainyard__Cli__Context *x = alloc_zeroed(1, sizeof *x);
    trainyard__cli__context__init(x);
    x->name = alloc_copy_text(words[0]);
    x->controller = alloc_copy_text(words[1]);
    if ((args->cert != NULL) != (args->key != NULL))
        return err_set(e, ST_INVALID_ARGUMENT, "login: --cert and --key belong together");
    TRY(absolute("ca", args->ca, &x->ca, e));
    TRY(absolute("cert", args->cert, &x->cert, e));
    TRY(absolute("key", args->key, &x->key, e));
    TRY(read_token(args, x->name, &x->token, e));
    *ret = take_ptr(&x);
    return ST_OK;
}

/* A controller of an older release answers UNIMPLEMENTED, but only to callers that it accepts. */
static status_t ask(struct cli *c, const Trainyard__Cli__Context *x, char ret_caller[RPC_CALLER_BYTES], struct err *e) {
    CLEANUP(message_freep) Trainyard__V1__GetStatusResponse *status = NULL;
    ret_caller[0] = '\0';
    TRY(client_open_context(c, x, e));
    status_t st = client_get_status(c, &status, e);
    if (st == ST_OK)
        snprintf(ret_caller, RPC_CALLER_BYTES, "%s", status->caller);
    return st == ST_UNIMPLEMENTED ? ST_OK : st;
}

/* Replaces the context of the same name, or adds it. */
static status_t put(Trainyard__Cli__Contexts *all, Trainyard__Cli__Context **take_x, struct err *e) {
    for (size_t i = 0; i < all->n_contexts; i++)
        if (strcmp(all->contexts[i]->name, (*take_x)->name) == 0) {
            trainyard__cli__context__free_unpacked(all->contexts[i], NULL);
            all->contexts[i] = take_ptr(take_x);
            return ST_OK;
        }
    if (all->n_contexts == CONTEXTS_MAX)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "there are %d contexts: delete one first", CONTEXTS_MAX);
    all->contexts = alloc_grow(all->contexts, all->n_contexts, sizeof *all->contexts);
    all->contexts[all->n_contexts++] = take_ptr(take_x);
    return ST_OK;
}

static void set_current(Trainyard__Cli__Contexts *all, const char *name) {
    if (all->current != (char *)protobuf_c_empty_string)
        free(all->current);
    all->current = alloc_copy_text(name);
}

static status_t run_login(struct cli *c, const void *args, char *const words[], struct err *e) {
    char caller[RPC_CALLER_BYTES];
    CLEANUP(closep) int lock = -1;
    CLEANUP(message_freep) Trainyard__Cli__Context *x = NULL;
    CLEANUP(message_freep) Trainyard__Cli__Contexts *all = NULL;
    TRY(context_name_check(words[0], e));
    TRY(make_context(args, words, &x, e));
    TRY(ask(c, x, caller, e));
    TRY(contexts_lock(&lock, e)); /* not while a user types the token */
    TRY(contexts_read(&all, e));
    TRY(put(all, &x, e));
    set_current(all, words[0]);
    TRY(contexts_write(all, e));
    printf("%s is the current context: %s%s", words[0], words[1], *caller ? ", as " : "");
    output_text(stdout, caller);
    putchar('\n');
    return ST_OK;
}

static const struct option_row login_options[] = {
    { "ca", 0, "FILE", "the CA of the controller's certificate, for TLS", OPTION_TEXT, offsetof(struct login_args, ca),
      NULL },
    { "cert", 0, "FILE", "your certificate", OPTION_TEXT, offsetof(struct login_args, cert), NULL },
    { "key", 0, "FILE", "the key of your certificate", OPTION_TEXT, offsetof(struct login_args, key), NULL },
    { "token-file", 0, "FILE",
      "read the token from FILE; with --ca the default is TRAINYARD_TOKEN, a terminal or stdin", OPTION_TEXT,
      offsetof(struct login_args, token_file), NULL },
    { 0 },
};

const struct command command_login = {
    .name = "login",
    .arguments = "NAME ADDR [--ca FILE] [--cert FILE --key FILE] [--token-file FILE]",
    .summary = "Stores how to reach a controller, with your token, and makes it the current one.",
    .details =
        "Asks the controller first: nothing is stored if it cannot be reached or refuses the token. NAME is a name of\n"
        "your choice, ADDR is host:port or unix:/path. The files stay where they are; the token is copied. All this "
        "is\n"
        "kept in ~/.config/trainyard/contexts.yaml (or below XDG_CONFIG_HOME), which only you can read. Commands then\n"
        "use this controller, unless --controller, --context, TRAINYARD_CONTROLLER or ./.trainyard/address names one.",
    .example = "trainyard login lab controller.lab:7700 --ca ca.pem --cert me.pem --key me.key --token-file token\n"
               "trainyard login local unix:/run/trainyard/controller.sock",
    .options = login_options,
    .args_bytes = sizeof(struct login_args),
    .min_words = 2,
    .max_words = 2,
    .local = true,
    .run = run_login,
};

/* ---- context ---- */

static status_t list(const Trainyard__Cli__Contexts *all, struct err *e) {
    static const char *const heads[] = { "CURRENT", "NAME", "CONTROLLER", "TLS", "TOKEN", NULL };
    CLEANUP(table_done) struct table t;
    table_init(&t, heads);
    for (size_t i = 0; i < all->n_contexts; i++) {
        const Trainyard__Cli__Context *x = all->contexts[i];
        table_cell(&t, "%s", strcmp(x->name, all->current) == 0 ? "*" : "");
        table_cell(&t, "%s", x->name);
        table_cell(&t, "%s", x->controller);
        table_cell(&t, "%s", *x->ca ? "yes" : "no");
        table_cell(&t, "%s", *x->token ? "yes" : "no");
    }
    return output_table_print(&t, e);
}

static status_t use(Trainyard__Cli__Contexts *all, const char *name, struct err *e) {
    Trainyard__Cli__Context *x;
    TRY(contexts_get(all, name, &x, e));
    set_current(all, name);
    TRY(contexts_write(all, e));
    printf("%s is the current context: %s\n", x->name, x->controller);
    return ST_OK;
}

static status_t delete (Trainyard__Cli__Contexts *all, const char *name, struct err *e) {
    Trainyard__Cli__Context *x;
    TRY(contexts_get(all, name, &x, e));
    size_t i = 0;
    while (all->contexts[i] != x)
        i++;
    all->n_contexts--;
    memmove(&all->contexts[i], &all->contexts[i + 1], (all->n_contexts - i) * sizeof *all->contexts);
    trainyard__cli__context__free_unpacked(x, NULL);
    const bool was_current = strcmp(all->current, name) == 0;
    if (was_current)
        set_current(all, "");
    TRY(contexts_write(all, e));
    printf("%s is deleted%s\n", name, was_current ? "; no context is current" : "");
    return ST_OK;
}

static status_t run_context(struct cli *c, const void *args, char *const words[], struct err *e) {
    (void)c;
    (void)args;
    const char *verb = words[0];
    const bool lists = strcmp(verb, "list") == 0, uses = strcmp(verb, "use") == 0,
               deletes = strcmp(verb, "delete") == 0;
    if (!lists && !uses && !deletes)
        return err_set(e, ST_INVALID_ARGUMENT, "context: '%.40s' is not one of: list, use, delete", verb);
    if (lists != !words[1])
        return err_set(e, ST_INVALID_ARGUMENT,
                       lists ? "usage: trainyard context list" : "usage: trainyard context %s CONTEXT", verb);
    CLEANUP(closep) int lock = -1;
    CLEANUP(message_freep) Trainyard__Cli__Contexts *all = NULL;
    if (!lists)
        TRY(contexts_lock(&lock, e));
    TRY(contexts_read(&all, e));
    return lists ? list(all, e) : uses ? use(all, words[1], e) : delete (all, words[1], e);
}

const struct command command_context = {
    .name = "context",
    .arguments = "list | use CONTEXT | delete CONTEXT",
    .summary = "Lists the controllers that you have logged in to, selects one, or forgets one.",
    .details =
        "'use' makes a context the current one: the controller of all commands that name no other. 'delete' forgets\n"
        "its address and token; the token stays valid (see 'trainyard token revoke'). --context uses a context\n"
        "for one command.",
    .example = "trainyard context list\ntrainyard context use lab\ntrainyard list --context lab",
    .args_bytes = 1,
    .min_words = 1,
    .max_words = 2,
    .local = true,
    .run = run_context,
};
