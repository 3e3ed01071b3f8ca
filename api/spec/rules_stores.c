#include "api/spec/data_uri.h"
#include "api/spec/rules.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { REGION_BYTES = 63, STORE_URI_BYTES = 800 /* a key of S3 has 1,024 */ };

/* HOST[:PORT] behind http:// or https://. */
static const char *host_of(const char *endpoint) {
    return strncmp(endpoint, "https://", 8) == 0  ? endpoint + 8
           : strncmp(endpoint, "http://", 7) == 0 ? endpoint + 7
                                                  : NULL;
}

static bool is_endpoint(const char *endpoint) {
    const char *host = host_of(endpoint);
    const size_t n = host ? strspn(host, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:[]") : 0;
    return n > 0 && host[n] == '\0' && *host != ':' && *host != '-';
}

static bool check_endpoint(const char *endpoint, const char *field, struct spec_problems *p) {
    if (!*endpoint || is_endpoint(endpoint))
        return *endpoint;
    problem_add(p, "%s: '%.80s' is not https://HOST[:PORT] or http://HOST[:PORT]", field, endpoint);
    return false;
}

static bool is_loopback(const char *host) {
    return strncmp(host, "127.", 4) == 0 || strncmp(host, "[::1]", 5) == 0 ||
           (strncmp(host, "localhost", 9) == 0 && (host[9] == ':' || !host[9]));
}

/* A signature does not contain its key; a token is sent as it is. */
static void check_token(const char *store, const char *endpoint, const char *token, struct spec_problems *p) {
    char field[32];
    snprintf(field, sizeof field, "stores.%s.endpoint", store);
    if (check_endpoint(endpoint, field, p) && *token && strncmp(endpoint, "http://", 7) == 0 &&
        !is_loopback(endpoint + 7))
        problem_add(p, "stores.%s.token: would be sent unencrypted to '%.80s': the endpoint must begin with https://",
                    store, endpoint);
}

static void check_https(const Trainyard__V1__HttpsStore *https, struct spec_problems *p) {
    check_token("https", https->endpoint, https->token, p);
    if (*https->token && !*https->endpoint)
        problem_add(p, "stores.https.token: needs stores.https.endpoint, the host that gets it");
}

static void check_s3(const Trainyard__V1__S3Store *s3, struct spec_problems *p) {
    const char *region = s3->region ? s3->region : "";
    const size_t n = strspn(region, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-");
    check_endpoint(s3->endpoint, "stores.s3.endpoint", p);
    if (n == 0 || n > REGION_BYTES || region[n])
        problem_add(p, "stores.s3.region: '%.80s' is not 1 to %d letters, digits and '-'", region, REGION_BYTES);
    if (!*s3->access_key != !*s3->secret_key)
        problem_add(p, "stores.s3.%s: must be given with %s", *s3->access_key ? "secret_key" : "access_key",
                    *s3->access_key ? "access_key" : "secret_key");
}

static bool uses(const char *const *uris, size_t n, const char *scheme) {
    for (size_t i = 0; i < n; i++)
        if (strncmp(uris[i], scheme, strlen(scheme)) == 0)
            return true;
    return false;
}

/* Without encryption anybody on the way could change the data. */
void rules_unencrypted(const Trainyard__V1__JobSpec *spec, struct spec_problems *p) {
    const char *endpoint = spec->stores && spec->stores->https ? spec->stores->https->endpoint : "";
    size_t n;
    const char **uris = data_uris_remote(spec, &n);
    for (size_t i = 0; i < n; i++)
        if (strncmp(uris[i], "http://", 7) == 0 &&
            (!*endpoint || strncmp(uris[i], endpoint, strlen(endpoint)) != 0 || uris[i][strlen(endpoint)] != '/'))
            problem_add(p,
                        "data: '%.120s' is not encrypted: use https://, or name http:// and the host in "
                        "stores.https.endpoint",
                        uris[i]);
    free(uris);
}

/* ---- checkpoints ---- */

bool spec_checkpoints_in_store(const Trainyard__V1__JobSpec *spec) {
    return spec->checkpoint && spec->checkpoint->store && *spec->checkpoint->store;
}

/* Step folders are named below it, so it is the name of one object without an end. */
static void check_store_uri(const char *uri, struct spec_problems *p) {
    struct err why;
    const size_t n = strlen(uri);
    if (strncmp(uri, "s3://", 5) != 0 || n > STORE_URI_BYTES || uri[n - 1] == '/' || strpbrk(uri, "]}"))
        problem_add(
            p, "checkpoint.store: '%.120s' is not s3://BUCKET/PREFIX with at most %d bytes, and without '/' at its end",
            uri, STORE_URI_BYTES);
    else if (data_uri_check(uri, false, &why) != ST_OK)
        problem_add(p, "checkpoint.store: %s", why.msg);
}

void rules_checkpoint_store(const Trainyard__V1__JobSpec *spec, struct spec_problems *p) {
    if (!spec_checkpoints_in_store(spec))
        return;
    if (spec->program) {
        problem_add(p, "checkpoint.store: is for a model; a program writes its checkpoints to checkpoint.directory");
        return;
    }
    check_store_uri(spec->checkpoint->store, p);
    if (!spec->stores || !spec->stores->s3)
        problem_add(p, "checkpoint.store: needs stores.s3, which says how the hosts reach it");
    if (spec->checkpoint->directory && *spec->checkpoint->directory)
        problem_add(p, "checkpoint.store: is given with checkpoint.directory; checkpoints go to one of them");
    if (spec->train && spec->train->profile && spec->train->profile->from > 0)
        problem_add(p,
                    "train.profile: is written to a folder that the hosts share, and checkpoint.store takes its place");
}

/* ---- stores ---- */

/* Whether the job reads or writes something of the store beside its data. A checkpoint of another job may be in one. */
static bool uses_beside_data(const Trainyard__V1__JobSpec *spec, const char *scheme) {
    const char *from = spec->train && spec->train->init_from ? spec->train->init_from : "";
    const bool s3 = strcmp(scheme, "s3://") == 0;
    return strncmp(from, scheme, strlen(scheme)) == 0 ||
           (s3 && (spec_checkpoints_in_store(spec) || strncmp(from, "jobs/", 5) == 0));
}

/* A key that no URI needs is not sent to a host. */
static void check_used(const Trainyard__V1__JobSpec *spec, struct spec_problems *p) {
    const Trainyard__V1__StoresSpec *stores = spec->stores;
    const struct {
        const void *given;
        const char *name, *scheme;
    } all[] = { { stores->s3, "s3", "s3://" }, { stores->hf, "hf", "hf://" }, { stores->https, "https", "http" } };
    size_t n;
    const char **uris = data_uris_remote(spec, &n);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i].given && !uses(uris, n, all[i].scheme) && !uses_beside_data(spec, all[i].scheme))
            problem_add(p, "stores.%s: the job has no data with a URI of %s://", all[i].name, all[i].name);
    free(uris);
}

void rules_stores(const Trainyard__V1__JobSpec *spec, struct spec_problems *p) {
    if (spec->program) {
        problem_add(p, "stores: is for the data of a model; a program gets its keys by program.secrets");
        return;
    }
    if (spec->stores->s3)
        check_s3(spec->stores->s3, p);
    if (spec->stores->hf)
        check_token("hf", spec->stores->hf->endpoint, spec->stores->hf->token, p);
    if (spec->stores->https)
        check_https(spec->stores->https, p);
    check_used(spec, p);
}
