/* One POST by libcurl, signed. A receiver that answers 2xx has the notification. Redirects are not followed: the body
 * and its signature are for the configured receiver only. A 4xx other than 408 and 429 is final, because the receiver
 * would refuse the same notification again. Reasons name the origin of the URL only, because the rest is often a
 * secret. The answer's body is not read beyond what the connection needs. */
#include "base/clock.h"
#include "service/notify/message.h"
#include "service/notify/receiver.h"
#include "service/notify/signature.h"

#include <curl/curl.h>
#include <stdio.h>
#include <string.h>

enum { ANSWER_MAX_BYTES = 64 << 10 };

static size_t ignore(char *data, size_t size, size_t n, void *ctx) {
    size_t *left = ctx;
    (void)data;
    const size_t bytes = size * n;
    if (bytes > *left)
        return 0; /* ends the transfer */
    *left -= bytes;
    return bytes;
}

static int must_stop(void *ctx, curl_off_t a, curl_off_t b, curl_off_t c, curl_off_t d) {
    (void)a, (void)b, (void)c, (void)d;
    return atomic_load((const atomic_bool *)ctx);
}

static struct curl_slist *headers_of(const struct notify_target *t, const struct store_notification *n,
                                     const struct bytes *body) {
    char line[200], signature[SIGNATURE_BYTES];
    const int64_t now_s = clock_wall_us() / 1000000;
    signature_of(t->key, t->n_key, now_s, body->data, body->len, signature);
    struct curl_slist *l = curl_slist_append(NULL, "Content-Type: application/json");
    snprintf(line, sizeof line, "X-Trainyard-Delivery: %s", n->delivery);
    l = curl_slist_append(l, line);
    snprintf(line, sizeof line, "X-Trainyard-Event: %.64s", notify_event_name(n));
    l = curl_slist_append(l, line);
    snprintf(line, sizeof line, "X-Trainyard-Timestamp: %lld", (long long)now_s);
    l = curl_slist_append(l, line);
    snprintf(line, sizeof line, "X-Trainyard-Signature: sha256=%s", signature);
    return curl_slist_append(l, line);
}

static enum notify_result judge(long status, const char *origin, struct err *ret_why) {
    if (status >= 200 && status < 300)
        return NOTIFY_DELIVERED;
    status_ignore(err_set(ret_why, ST_UNAVAILABLE, "%s answered with status %ld%s", origin, status,
                          status >= 300 && status < 400 ? ", and redirects are not followed" : ""));
    return status >= 400 && status < 500 && status != 408 && status != 429 ? NOTIFY_REFUSED : NOTIFY_FAILED;
}

/* Why libcurl has no answer. With a certificate it names the check that failed; what helps follows. */
static enum notify_result no_answer(const struct notify_target *t, CURLcode rc, const char *detail,
                                    struct err *ret_why) {
    const char *remedy = "";
    if (rc == CURLE_PEER_FAILED_VERIFICATION)
        remedy = t->spec->webhook->ca_file[0]
                     ? " (the CAs are those of webhook.ca_file)"
                     : " (webhook.ca_file can name the CA; without it the CAs of this host count)";
    status_ignore(
        err_set(ret_why, ST_UNAVAILABLE, "%s: %.200s%s", t->origin, *detail ? detail : curl_easy_strerror(rc), remedy));
    return NOTIFY_FAILED;
}

enum notify_result webhook_deliver(const struct notify_target *t, const struct store_notification *n,
                                   const struct bytes *body, const atomic_bool *stop, struct err *ret_why) {
    const Trainyard__V1__WebhookReceiver *w = t->spec->webhook;
    char detail[CURL_ERROR_SIZE] = "";
    size_t left = ANSWER_MAX_BYTES;
    long status = 0;
    CURL *curl = curl_easy_init();
    struct curl_slist *headers = curl ? headers_of(t, n, body) : NULL;
    if (!curl || !headers) {
        curl_easy_cleanup(curl);
        status_ignore(err_set(ret_why, ST_RESOURCE_EXHAUSTED, "libcurl has no memory"));
        return NOTIFY_FAILED;
    }
    curl_easy_setopt(curl, CURLOPT_URL, w->url);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDS, body->data);
    curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE, (long)body->len);
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers);
    curl_easy_setopt(curl, CURLOPT_USERAGENT, "trainyard/" TRAINYARD_VERSION);
    curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, (long)t->timeout_ms);
    curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
    curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L); /* this is one thread of many */
    curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, detail);
    curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, ignore);
    curl_easy_setopt(curl, CURLOPT_WRITEDATA, &left);
    curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, must_stop);
    curl_easy_setopt(curl, CURLOPT_XFERINFODATA, (void *)(uintptr_t)stop);
    if (w->ca_file[0])
        curl_easy_setopt(curl, CURLOPT_CAINFO, w->ca_file);
    const CURLcode rc = curl_easy_perform(curl);
    curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
    curl_slist_free_all(headers);
    curl_easy_cleanup(curl);
    if (rc == CURLE_OK || (rc == CURLE_WRITE_ERROR && status > 0)) /* the status counts, not the rest of the answer */
        return judge(status, t->origin, ret_why);
    return no_answer(t, rc, detail, ret_why);
}
