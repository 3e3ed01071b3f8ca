/* https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-query-string-auth.html: the string to sign names the digest of
 * the canonical request; the key is derived from the secret by the day, the region and the service. The path is signed
 * as it is sent. */
#include "service/controller/store_links.h"

#include "api/spec/remote_uri.h"
#include "base/alloc.h"
#include "base/cleanup.h"
#include "base/sha256.h"

#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { DAY_BYTES = 16, TIME_BYTES = 24 };

static void hmac(const void *key, size_t key_bytes, const char *text, uint8_t ret[SHA256_BYTES]) {
    unsigned n = 0;
    HMAC(EVP_sha256(), key, (int)key_bytes, (const unsigned char *)text, strlen(text), ret, &n);
}

static void signature(const struct store_link_keys *k, const char *day, const char *text, char ret[SHA256_HEX]) {
    uint8_t digest[SHA256_BYTES];
    CLEANUP(freep) char *first = alloc_format("AWS4%s", k->secret_key);
    hmac(first, strlen(first), day, digest);
    explicit_bzero(first, strlen(first));
    hmac(digest, sizeof digest, k->region, digest);
    hmac(digest, sizeof digest, "s3", digest);
    hmac(digest, sizeof digest, "aws4_request", digest);
    hmac(digest, sizeof digest, text, digest);
    sha256_hex(digest, ret);
}

/* The query with the signature. */
static char *query_of(const struct store_link_keys *k, const char *path) {
    char day[DAY_BYTES], now[TIME_BYTES], request_hex[SHA256_HEX], signed_hex[SHA256_HEX];
    uint8_t digest[SHA256_BYTES];
    struct tm utc;
    const time_t at = k->now_s;
    gmtime_r(&at, &utc);
    strftime(day, sizeof day, "%Y%m%d", &utc);
    strftime(now, sizeof now, "%Y%m%dT%H%M%SZ", &utc);
    const char *host = strstr(k->endpoint, "://");
    CLEANUP(freep) char *scope = alloc_format("%s/%s/s3/aws4_request", day, k->region);
    CLEANUP(freep) char *who = alloc_format("%s/%s", k->access_key, scope);
    CLEANUP(freep) char *credential = remote_text_encode(who, "");
    CLEANUP(freep)
    char *query = alloc_format("X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential=%s&X-Amz-Date=%s&X-Amz-Expires=%d"
                               "&X-Amz-SignedHeaders=host",
                               credential, now, k->valid_s);
    CLEANUP(freep)
    char *request = alloc_format("GET\n%s\n%s\nhost:%s\n\nhost\nUNSIGNED-PAYLOAD", path, query,
                                 host ? host + 3 : k->endpoint);
    sha256_of(request, strlen(request), digest);
    sha256_hex(digest, request_hex);
    CLEANUP(freep) char *text = alloc_format("AWS4-HMAC-SHA256\n%s\n%s\n%s", now, scope, request_hex);
    signature(k, day, text, signed_hex);
    return alloc_format("%s&X-Amz-Signature=%s", query, signed_hex);
}

char *store_link(const struct store_link_keys *keys, const char *uri) {
    CLEANUP(freep) char *decoded = remote_path_decode(uri + sizeof "s3:/" - 1); /* with the slash before the bucket */
    CLEANUP(freep) char *path = remote_text_encode(decoded, "/");
    CLEANUP(freep) char *query = *keys->access_key ? query_of(keys, path) : NULL;
    return alloc_format("%s%s%s%s", keys->endpoint, path, query ? "?" : "", query ? query : "");
}
