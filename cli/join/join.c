/* trainyard join: makes this host an executor of a controller.
 *
 * 1. The CA is fetched and compared with the fingerprint of the token. Nothing secret has been sent.
 * 2. A key and a token are drawn and written, so that a crash after step 3 loses neither.
 * 3. Join: over TLS that trusts this CA alone. The controller signs the key and stores the token's digest.
 * 4. The certificate and, last, the settings of the unit are written. Only then has the host joined.
 *
 * Then the executor starts: as the unit, or with --foreground in place of this process. */
#include "api/codec/message.h"
#include "api/rpc/client.h"
#include "base/file.h"
#include "cli/client.h"
#include "cli/command.h"
#include "cli/join/ca.h"
#include "cli/join/identity.h"
#include "cli/join/token.h"
#include "cli/sibling.h"

#include <errno.h>
#include <limits.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <trainyard/v1/join.pb-c.h>
#include <unistd.h>

#define UNIT "trainyard-executor"
enum { FILE_BYTES = 1 << 20 };

struct join_args {
    const char *directory;
    bool foreground;
};

/* DIR/NAME. */
static status_t path_of(const char *directory, const char *name, char ret[PATH_MAX], struct err *e) {
    const int n = snprintf(ret, PATH_MAX, "%s/%s", directory, name);
    return n < PATH_MAX ? ST_OK : err_set(e, ST_INVALID_ARGUMENT, "--directory: the path is too long");
}

/* With the unit, the files belong to its user; nobody else can read them. */
static status_t put(const struct join_args *args, const char *name, const char *data, size_t n, struct err *e) {
    char path[PATH_MAX];
    TRY(path_of(args->directory, name, path, e));
    TRY(file_write_atomic(path, data, n, 0600, e));
    const struct passwd *user = args->foreground ? NULL : getpwnam(UNIT);
    if (user && chown(path, user->pw_uid, user->pw_gid) != 0)
        return err_errno(e, "give '%s' to the user " UNIT, path);
    return ST_OK;
}

static status_t check_new(const struct join_args *args, struct err *e) {
    char path[PATH_MAX];
    if (args->directory[0] != '/')
        return err_set(e, ST_INVALID_ARGUMENT, "--directory: '%s' is not an absolute path", args->directory);
    if (!args->foreground && (geteuid() != 0 || !getpwnam(UNIT) || access("/run/systemd/system", F_OK) != 0))
        return err_set(e, ST_FAILED_PRECONDITION,
                       "to start the unit " UNIT " needs root, systemd and the package " UNIT
                       "; use --foreground to start the executor without it");
    TRY(path_of(args->directory, "joined.conf", path, e));
    if (access(path, F_OK) == 0)
        return err_set(e, ST_ALREADY_EXISTS, "this host has joined already; to join again, remove '%s'", path);
    return dir_make(args->directory, 0750, e);
}

static status_t call(const struct join_args *args, const struct join_token *token, const struct join_identity *identity,
                     ProtobufCMessage **ret, struct err *e) {
    char ca[PATH_MAX], id[37];
    TRY(path_of(args->directory, "ca.pem", ca, e));
    client_request_id(id);
    struct rpc_channel_config config = {
        .address = token->address.text, .tls = { .ca = ca }, .token = token->secret, .request_id = id
    };
    CLEANUP(rpc_channel_closep) struct rpc_channel *channel = NULL;
    TRY(rpc_channel_open(&config, &channel, e));
    Trainyard__V1__JoinRequest request = TRAINYARD__V1__JOIN_REQUEST__INIT;
    request.token_sha256 = (ProtobufCBinaryData){ sizeof identity->token_digest,
                                                  (uint8_t *)(uintptr_t)identity->token_digest };
    request.certificate_request = (ProtobufCBinaryData){ identity->request.len, (uint8_t *)identity->request.data };
    const status_t st = rpc_call_unary(channel, &trainyard__v1__join_service__descriptor, "Join", &request.base, 0, ret,
                                       e);
    if (st == ST_UNAUTHENTICATED)
        return err_prefix(e, st, "the join token was used, was revoked, has expired, or is wrong: ");
    return st;
}

static status_t put_settings(const struct join_args *args, const Trainyard__V1__JoinResponse *joined, struct err *e) {
    const char *d = args->directory;
    CLEANUP(bytes_done) struct bytes text;
    bytes_init(&text, FILE_BYTES);
    TRY(bytes_printf(&text, e,
                     "# Written by trainyard join. Settings that you change are in /etc/trainyard/executor.conf.\n"
                     "TRAINYARD_CONTROLLER=\"%s\"\n"
                     "TRAINYARD_IDENTITY=\"--tls-ca %s/ca.pem --tls-cert %s/cert.pem --tls-key %s/key.pem "
                     "--token-file %s/token\"\n",
                     joined->controller, d, d, d, d));
    TRY(put(args, "cert.pem", joined->certificate, strlen(joined->certificate), e));
    return put(args, "joined.conf", text.data, text.len, e);
}

static status_t join(const struct join_args *args, const struct join_token *token, struct join_identity *identity,
                     ProtobufCMessage **ret, struct err *e) {
    CLEANUP(bytes_done) struct bytes ca;
    bytes_init(&ca, FILE_BYTES);
    TRY(join_ca_fetch(token, &ca, e));
    TRY(join_identity_make(identity, e));
    TRY(put(args, "ca.pem", ca.data, ca.len, e));
    TRY(put(args, "key.pem", identity->key.data, identity->key.len, e));
    TRY(put(args, "token", identity->token, strlen(identity->token), e));
    TRY(call(args, token, identity, ret, e));
    return put_settings(args, (const Trainyard__V1__JoinResponse *)*ret, e);
}

static status_t run_executor(const struct join_args *args, const char *controller, char *const words[], struct err *e) {
    static const char *const files[][2] = {
        { "--tls-ca", "ca.pem" }, { "--tls-cert", "cert.pem" }, { "--tls-key", "key.pem" }, { "--token-file", "token" }
    };
    char paths[4][PATH_MAX], state[PATH_MAX];
    struct sibling s = { 0 };
    TRY(path_of(args->directory, "state", state, e));
    sibling_add(&s, "--controller");
    sibling_add(&s, controller);
    sibling_add(&s, "--directory");
    sibling_add(&s, state);
    for (size_t i = 0; i < 4; i++) {
        TRY(path_of(args->directory, files[i][1], paths[i], e));
        sibling_add(&s, files[i][0]);
        sibling_add(&s, paths[i]);
    }
    for (; *words; words++)
        sibling_add(&s, *words);
    return sibling_become(&s, UNIT, e);
}

static status_t start_unit(struct err *e) {
    fflush(stdout);
    execl("/bin/sh", "sh", "-c", "systemctl enable -q " UNIT " && systemctl restart " UNIT, (char *)NULL);
    return err_errno(e, "start the unit " UNIT);
}

static status_t run_join(struct cli *c, const void *args_, char *const words[], struct err *e) {
    const struct join_args *args = args_;
    struct join_token token;
    struct join_identity identity = { 0 };
    CLEANUP(message_freep) ProtobufCMessage *reply = NULL;
    (void)c;
    if (words[1] && !args->foreground)
        return err_set(e, ST_INVALID_ARGUMENT,
                       "'%s': options of the executor need --foreground; the unit has them in executor.conf", words[1]);
    TRY(join_token_parse(words[0], &token, e));
    TRY(check_new(args, e));
    const status_t st = join(args, &token, &identity, &reply, e);
    join_identity_done(&identity);
    explicit_bzero(token.secret, sizeof token.secret);
    TRY(st);
    const Trainyard__V1__JoinResponse *joined = (const Trainyard__V1__JoinResponse *)reply;
    printf("this host has joined %s as %s\n", joined->controller, joined->name);
    return args->foreground ? run_executor(args, joined->controller, words + 1, e) : start_unit(e);
}

static const struct option_row join_options[] = {
    { "directory", 0, "DIR", "where key, certificates and token are written", OPTION_TEXT,
      offsetof(struct join_args, directory), "/etc/trainyard/executor" },
    { "foreground", 0, NULL, "run the executor in place of this command, with the options after '--'", OPTION_FLAG,
      offsetof(struct join_args, foreground), NULL },
    { 0 },
};

const struct command command_join = {
    .name = "join",
    .arguments = "TOKEN [-- EXECUTOR-OPTION...]",
    .summary = "Makes this host an executor of a controller, and starts it.",
    .details =
        "TOKEN is what 'trainyard token create NAME --join' prints. The host gets a certificate and a token of the\n"
        "same name; their secrets are drawn here and stay here. TOKEN works once, until it expires or\n"
        "'trainyard token revoke NAME' ends it; later the same command takes the host out of the service. Without\n"
        "--foreground the executor runs as the unit trainyard-executor, with the options of\n"
        "/etc/trainyard/executor.conf, and this needs root.",
    .example = "trainyard join TOKEN\n"
               "trainyard join TOKEN --directory ~/executor --foreground -- --checkpoint-root /ckpt",
    .options = join_options,
    .args_bytes = sizeof(struct join_args),
    .min_words = 1,
    .max_words = 100,
    .local = true,
    .run = run_join,
};
