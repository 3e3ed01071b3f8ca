/* Reads the file with the codec, which reports unknown fields and wrong types, and then checks each target: its name,
 * its events, and the receiver. A name of a state in capitals becomes a number of the database; every other event must
 * look like a kind. The key of a webhook is the content of a file that only the user of the controller can read. */
#include "service/notify/config.h"

#include "api/codec/text.h"
#include "base/alloc.h"
#include "base/file.h"

#include <ctype.h>
#include <curl/curl.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    FILE_BYTES = 64 << 10,
    KEY_MIN_BYTES = 16,
    KEY_MAX_BYTES = 1024,
    WEBHOOK_TIMEOUT_S = 10,
    COMMAND_TIMEOUT_S = 30,
    TIMEOUT_MAX_S = 300,
};

static bool name_is_good(const char *name) {
    const size_t n = strlen(name);
    for (size_t i = 0; i < n; i++)
        if (!islower((unsigned char)name[i]) && !isdigit((unsigned char)name[i]) && (i == 0 || !strchr("._-", name[i])))
            return false;
    return n > 0 && n <= 63;
}

/* 0: no state has this name. */
static int32_t state_of(const char *event) {
    for (int state = STORE_JOB_QUEUED; state <= STORE_JOB_CANCELLED; state++)
        if (strcmp(event, store_job_state_name(state)) == 0)
            return state;
    return 0;
}

static bool kind_is_good(const char *event) {
    const size_t n = strlen(event);
    for (size_t i = 0; i < n; i++)
        if (!islower((unsigned char)event[i]) && (i == 0 || (!isdigit((unsigned char)event[i]) && event[i] != '_')))
            return false;
    return n > 0 && n <= 63;
}

static status_t read_events(struct notify_target *t, struct err *e) {
    static const int32_t ends[] = { STORE_JOB_SUCCEEDED, STORE_JOB_FAILED, STORE_JOB_CANCELLED };
    const Trainyard__V1__NotifyTarget *spec = t->spec;
    int32_t *states = alloc_zeroed(spec->n_events + 3, sizeof *states);
    const char **kinds = alloc_zeroed(spec->n_events + 1, sizeof *kinds);
    t->row.states = states;
    t->row.kinds = kinds;
    if (spec->n_events == 0) {
        memcpy(states, ends, sizeof ends);
        t->row.n_states = 3;
    }
    for (size_t i = 0; i < spec->n_events; i++) {
        const int32_t state = state_of(spec->events[i]);
        if (state)
            states[t->row.n_states++] = state;
        else if (kind_is_good(spec->events[i]))
            kinds[t->row.n_kinds++] = spec->events[i];
        else
            return err_set(e, ST_INVALID_ARGUMENT,
                           "events: '%.64s' is neither a state of a job, such as FAILED, nor a kind of events, such as "
                           "executor_lost",
                           spec->events[i]);
    }
    return ST_OK;
}

/* Whoever can read the key can sign in the name of this service. */
static status_t read_key(const char *path, struct notify_target *t, struct err *e) {
    struct stat st;
    CLEANUP(bytes_done) struct bytes text;
    bytes_init(&text, KEY_MAX_BYTES + 2);
    if (stat(path, &st) != 0)
        return err_errno(e, "webhook.secret_file: '%s'", path);
    if ((st.st_uid != geteuid() && st.st_uid != 0) || (st.st_mode & (S_IRWXG | S_IRWXO)))
        return err_set(e, ST_PERMISSION_DENIED,
                       "webhook.secret_file: others than its owner can read '%s', or it belongs to another user: run "
                       "chmod 600 '%s'",
                       path, path);
    status_t got = file_read(path, &text, e);
    if (got != ST_OK)
        return err_prefix(e, got, "webhook.secret_file: ");
    const size_t n = text.len ? strcspn(text.data, "\r\n") : 0;
    if (n < KEY_MIN_BYTES || n > KEY_MAX_BYTES)
        got = err_set(e, ST_INVALID_ARGUMENT, "webhook.secret_file: '%s' has no line of %d to %d bytes", path,
                      KEY_MIN_BYTES, KEY_MAX_BYTES);
    else {
        t->key = alloc_zeroed(1, n + 1);
        memcpy(t->key, text.data, n);
        t->n_key = n;
    }
    if (text.len)
        explicit_bzero(text.data, text.len);
    return got;
}

static status_t read_timeout(int32_t given, int fallback, struct notify_target *t, struct err *e) {
    if (given < 0 || given > TIMEOUT_MAX_S)
        return err_set(e, ST_INVALID_ARGUMENT, "timeout_seconds: %d is not from 1 to %d", (int)given, TIMEOUT_MAX_S);
    t->timeout_ms = (given ? given : fallback) * 1000;
    return ST_OK;
}

/* Without this check a file that is no CA would be found only when the first notification fails. */
static status_t check_ca(const char *path, struct err *e) {
    CLEANUP(fclosep) FILE *f = fopen(path, "re");
    if (!f)
        return err_errno(e, "webhook.ca_file: '%s'", path);
    X509 *first = PEM_read_X509(f, NULL, NULL, NULL);
    const bool found = first != NULL;
    X509_free(first);
    ERR_clear_error();
    return found ? ST_OK
                 : err_set(e, ST_INVALID_ARGUMENT, "webhook.ca_file: '%s' has no certificate in PEM form", path);
}

/* False: libcurl would not send to this URL. */
static bool read_origin(const char *url, char ret[NOTIFY_ORIGIN_BYTES]) {
    char *scheme = NULL, *host = NULL, *port = NULL;
    CURLU *parts = curl_url();
    const bool good = parts && curl_url_set(parts, CURLUPART_URL, url, 0) == CURLUE_OK &&
                      curl_url_get(parts, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
                      curl_url_get(parts, CURLUPART_HOST, &host, 0) == CURLUE_OK;
    if (good && curl_url_get(parts, CURLUPART_PORT, &port, 0) != CURLUE_OK)
        port = NULL;
    if (good)
        snprintf(ret, NOTIFY_ORIGIN_BYTES, "%s://%s%s%s", scheme, host, port ? ":" : "", port ? port : "");
    curl_free(scheme);
    curl_free(host);
    curl_free(port);
    curl_url_cleanup(parts);
    return good;
}

/* The URL itself stays out of the sentence: it may be a secret. */
static status_t read_webhook(const Trainyard__V1__WebhookReceiver *w, struct notify_target *t, struct err *e) {
    const bool http = strncmp(w->url, "http://", 7) == 0, https = strncmp(w->url, "https://", 8) == 0;
    if ((!http && !https) || strlen(w->url) > 2000 || strpbrk(w->url, " \t\r\n") || !read_origin(w->url, t->origin))
        return err_set(e, ST_INVALID_ARGUMENT,
                       "webhook.url: it is not a URL that begins with https:// or http:// and has a host");
    if (!w->secret_file[0])
        return err_set(e, ST_INVALID_ARGUMENT, "webhook.secret_file: it is missing, and every webhook is signed");
    TRY(read_timeout(w->timeout_seconds, WEBHOOK_TIMEOUT_S, t, e));
    if (w->ca_file[0])
        TRY(check_ca(w->ca_file, e));
    return read_key(w->secret_file, t, e);
}

static status_t read_command(const Trainyard__V1__CommandReceiver *c, struct notify_target *t, struct err *e) {
    if (c->n_argv == 0 || c->argv[0][0] != '/')
        return err_set(e, ST_INVALID_ARGUMENT, "command.argv: the first word must be the absolute path of a program");
    if (access(c->argv[0], X_OK) != 0)
        return err_errno(e, "command.argv: '%s' cannot be executed", c->argv[0]);
    for (size_t i = 0; i < c->n_environment; i++)
        if (!strchr(c->environment[i], '=') || c->environment[i][0] == '=')
            return err_set(e, ST_INVALID_ARGUMENT, "command.environment: '%.64s' is not NAME=value", c->environment[i]);
    return read_timeout(c->timeout_seconds, COMMAND_TIMEOUT_S, t, e);
}

static status_t read_target(struct notify_config *c, struct notify_target *t, struct err *e) {
    const Trainyard__V1__NotifyTarget *spec = t->spec;
    if (!name_is_good(spec->name))
        return err_set(
            e, ST_INVALID_ARGUMENT,
            "name: '%.64s' is not 1 to 63 lower-case letters, digits, '.', '_' and '-', the first a letter or "
            "a digit",
            spec->name);
    for (const struct notify_target *other = c->targets; other < t; other++)
        if (strcmp(other->spec->name, spec->name) == 0)
            return err_set(e, ST_INVALID_ARGUMENT, "name: another target is named '%s'", spec->name);
    t->row.name = spec->name;
    TRY(read_events(t, e));
    switch (spec->receiver_case) {
    case TRAINYARD__V1__NOTIFY_TARGET__RECEIVER_WEBHOOK: return read_webhook(spec->webhook, t, e);
    case TRAINYARD__V1__NOTIFY_TARGET__RECEIVER_COMMAND: return read_command(spec->command, t, e);
    default: return err_set(e, ST_INVALID_ARGUMENT, "webhook or command is missing");
    }
}

static status_t read_targets(const char *text, size_t n, struct notify_config *c, struct err *e) {
    ProtobufCMessage *file;
    TRY(codec_parse(&trainyard__v1__notify_config__descriptor, text, n, NULL, &file, e));
    c->file = (Trainyard__V1__NotifyConfig *)file;
    if (c->file->n_targets > STORE_MAX_NOTIFICATION_TARGETS)
        return err_set(e, ST_INVALID_ARGUMENT, "targets: there are %zu, at most %d are allowed", c->file->n_targets,
                       STORE_MAX_NOTIFICATION_TARGETS);
    for (size_t i = 0; i < c->file->n_targets; i++) {
        struct notify_target *t = &c->targets[c->n++];
        t->spec = c->file->targets[i];
        const status_t st = read_target(c, t, e);
        if (st != ST_OK)
            return err_prefix(e, st, "targets[%zu].", i);
    }
    return ST_OK;
}

status_t notify_config_parse(const char *text, size_t n, struct notify_config *ret, struct err *e) {
    *ret = (struct notify_config){ 0 };
    status_t st = read_targets(text, n, ret, e);
    if (st != ST_OK)
        notify_config_done(ret);
    return st;
}

status_t notify_config_read(const char *path, struct notify_config *ret, struct err *e) {
    CLEANUP(bytes_done) struct bytes text;
    *ret = (struct notify_config){ 0 };
    bytes_init(&text, FILE_BYTES);
    if (!path)
        return ST_OK;
    TRY(file_read(path, &text, e));
    const status_t st = notify_config_parse(text.data ? text.data : "", text.len, ret, e);
    return st == ST_OK ? ST_OK : err_prefix(e, st, "'%s': ", path);
}

void notify_config_done(struct notify_config *c) {
    for (size_t i = 0; i < c->n; i++) {
        struct notify_target *t = &c->targets[i];
        if (t->key)
            explicit_bzero(t->key, t->n_key);
        free(t->key);
        free((void *)(uintptr_t)t->row.states);
        free((void *)(uintptr_t)t->row.kinds);
    }
    if (c->file)
        trainyard__v1__notify_config__free_unpacked(c->file, NULL);
    *c = (struct notify_config){ 0 };
}
