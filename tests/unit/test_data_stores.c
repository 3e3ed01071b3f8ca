/* What trainyard-data reads from users and from stores: URIs and patterns, keys and addresses, headers, listings, and
 * the checksums of stores. */
#include "api/spec/data_braces.h"
#include "base/limits.h"
#include "executor/data/answer.h"
#include "executor/data/listing.h"
#include "executor/data/store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static void a_uri_has_a_root_a_revision_and_a_path(void **state) {
    static const struct {
        const char *text, *root, *revision, *path;
        enum data_scheme scheme;
    } good[] = {
        { "s3://my-bucket/a/b c.bin", "my-bucket", NULL, "a/b c.bin", DATA_S3 },
        { "hf://team/model/a.bin", "team/model", "main", "a.bin", DATA_HF },
        { "hf://datasets/team/set@v1.0/d/{0..3}.bin", "datasets/team/set", "v1.0", "d/{0..3}.bin", DATA_HF },
        { "hf://datasets/team/set@refs%2Fpr%2F1/a", "datasets/team/set", "refs%2Fpr%2F1", "a", DATA_HF },
        { "https://h.example:8443/a?b=c", "https://h.example:8443", NULL, "/a?b=c", DATA_HTTPS },
        { "https://[::1]:80/a", "https://[::1]:80", NULL, "/a", DATA_HTTPS },
        { "http://h/a", "http://h", NULL, "/a", DATA_HTTPS },
    };
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        struct remote_uri uri = { 0 };
        struct err e = { "" };
        if (remote_uri_parse(good[i].text, &uri, &e) != ST_OK)
            fail_msg("%s: %s", good[i].text, e.msg);
        assert_int_equal(uri.scheme, good[i].scheme);
        assert_string_equal(uri.root, good[i].root);
        assert_string_equal(uri.revision ? uri.revision : "", good[i].revision ? good[i].revision : "");
        assert_string_equal(uri.path, good[i].path);
        remote_uri_done(&uri);
    }
}

static void a_wrong_uri_is_refused(void **state) {
    static const char *const wrong[] = { "",
                                         "a",
                                         "file:///a",
                                         "s3://",
                                         "s3://ab/c",
                                         "s3://bucket",
                                         "s3://bucket/",
                                         "s3://bucket/a/",
                                         "s3://bucket/./a",
                                         "s3://bucket/a/..",
                                         "s3://bucket/a%00",
                                         "s3://bucket/a%2",
                                         "s3://bucket/a%zz",
                                         "s3://bucket/%2e%2e/a",
                                         "s3://bu cket/a",
                                         "s3://bucket/a\nb",
                                         "s3://bucket/\xff",
                                         "s3://bucket/%ff",
                                         "hf://team/a",
                                         "hf://team",
                                         "hf://",
                                         "hf://team/set@/a",
                                         "hf://../set/a",
                                         "https:///a",
                                         "https://h",
                                         "https://h/",
                                         "https://u@h/a",
                                         "https://u:p@h/a",
                                         "https://h:/a",
                                         "https://h:123456/a",
                                         "https://[::1/a",
                                         "https://h/a b",
                                         "https://h/a#b",
                                         "https://h/*",
                                         "https://h/[a]",
                                         "https://h/\"" };
    (void)state;
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        struct remote_uri uri = { 0 };
        struct err e = { "" };
        if (remote_uri_parse(wrong[i], &uri, &e) != ST_INVALID_ARGUMENT || !*e.msg)
            fail_msg("'%s' is taken", wrong[i]);
    }
}

static void check_expansion(const char *path, const char *expected) {
    struct data_uris texts = { 0 };
    char all[512] = "";
    struct err e = { "" };
    if (data_braces_expand(path, 0, LIMIT_DATA_OBJECTS, &texts, &e) != ST_OK)
        snprintf(all, sizeof all, "refused");
    for (size_t i = 0; i < texts.n; i++)
        snprintf(all + strlen(all), sizeof all - strlen(all), "%s%s", i ? " " : "", texts.all[i]);
    assert_string_equal(all, expected);
    data_uris_free(&texts);
}

static void braces_are_written_out(void **state) {
    (void)state;
    check_expansion("a", "a");
    check_expansion("a{1..3}", "a1 a2 a3");
    check_expansion("{8..10}", "8 9 10");
    check_expansion("{08..10}", "08 09 10");
    check_expansion("{8..010}", "008 009 010");
    check_expansion("{a,b}/{0..1}x", "a/0x a/1x b/0x b/1x");
    check_expansion("{a,}b", "ab b");
    check_expansion("[{]a{1..2}", "[{]a1 [{]a2");
    check_expansion("%7B{a,b}", "%7Ba %7Bb");
    check_expansion("{a", "refused");
    check_expansion("{a}", "refused");
    check_expansion("{}", "refused");
    check_expansion("{3..1}", "refused");
    check_expansion("{a..c}", "refused");
    check_expansion("{1..}", "refused");
    check_expansion("{a,{b,c}}", "refused");
    check_expansion("{0..65536}", "refused");
    check_expansion("{0..99}{0..99}{0..99}", "refused");
    struct data_uris most = { 0 };
    assert_int_equal(data_braces_expand("{0..65535}", 0, LIMIT_DATA_OBJECTS, &most, NULL), ST_OK);
    assert_int_equal(most.n, LIMIT_DATA_OBJECTS);
    data_uris_free(&most);
}

static void check_match(const char *pattern, const char *path, bool expected) {
    char *glob = remote_path_glob(pattern);
    if (remote_path_matches(glob, path) != expected)
        fail_msg("%s and %s", pattern, path);
    free(glob);
}

static void wildcards_match_within_a_part_and_encoded_characters_match_themselves(void **state) {
    (void)state;
    check_match("a/*.bin", "a/b.bin", true);
    check_match("a/*.bin", "a/b/c.bin", false);
    check_match("a/*.bin", "a/.bin", false);
    check_match("*/x?", "a/x1", true);
    check_match("a[0-9]", "a5", true);
    check_match("a[!0-9]", "a5", false);
    check_match("a%2A", "a*", true);
    check_match("a%2A", "ab", false);
    check_match("a%5C*", "a\\b", true);
    check_match("a\\*", "a\\b", true);
    check_match("a[%5D]*", "a]b", true);
    char *literal = remote_path_decode("a%20b/%2A*c");
    assert_string_equal(literal, "a b/*");
    free(literal);
}

static void addresses_are_encoded_and_names_can_be_read_again(void **state) {
    Trainyard__V1__DataFetch order = TRAINYARD__V1__DATA_FETCH__INIT;
    struct stores stores;
    struct remote_uri uri = { 0 }, again = { 0 };
    atomic_bool end = false;
    (void)state;
    assert_int_equal(stores_open(&order, &end, &stores, NULL), ST_OK);
    assert_string_equal(stores.of[DATA_S3].endpoint, "https://s3.us-east-1.amazonaws.com");
    assert_int_equal(remote_uri_parse("s3://bucket/%25%2A +\xc3\xa9~/b", &uri, NULL), ST_OK);
    char *path = remote_path_decode(uri.path), *url = store_object_url(&stores.of[DATA_S3], &uri, NULL, path);
    char *name = store_object_name(&uri, NULL, path);
    assert_string_equal(url, "https://s3.us-east-1.amazonaws.com/bucket/%25%2A%20%2B%C3%A9~/b");
    assert_int_equal(remote_uri_parse(name, &again, NULL), ST_OK);
    char *same = remote_path_decode(again.path);
    assert_string_equal(same, path);
    free(path);
    free(url);
    free(name);
    free(same);
    remote_uri_done(&uri);
    remote_uri_done(&again);
    stores_done(&stores);
}

static void header(struct answer *a, const char *line) { answer_header(a, line, strlen(line)); }

static void headers_are_read_and_wrong_ones_change_nothing(void **state) {
    struct answer a;
    (void)state;
    answer_init(&a);
    header(&a, "HTTP/1.1 302 Found\r\n");
    header(&a, "ETag: \"old\"\r\n");
    header(&a, "HTTP/1.1 206 Partial Content\r\n");
    assert_string_equal(a.etag, "");
    header(&a, "etag:\"new\"\r\n");
    header(&a, "ETag: W/\"weak\"\r\n");
    assert_string_equal(a.etag, "\"new\"");
    header(&a, "Content-Length: 12\r\n");
    header(&a, "Content-Length: -1\r\n");
    header(&a, "Content-Length: 99999999999999999999\r\n");
    assert_int_equal(a.length, 12);
    header(&a, "Content-Range: bytes 5-9/20\r\n");
    header(&a, "Content-Range: bytes 9-5/20\r\n");
    header(&a, "Content-Range: bytes */20\r\n");
    assert_true(a.range_from == 5 && a.range_total == 20);
    header(&a, "Retry-After: 7\r\n");
    assert_int_equal(a.retry_after_ms, 7000);
    header(&a, "Retry-After: Sun, 06 Nov 1994 08:49:37 GMT\r\n");
    assert_int_equal(a.retry_after_ms, 0);
    header(&a, "x-amz-checksum-crc32c: AAAAAQ==\r\n");
    header(&a, "x-amz-checksum-sha256: AAAA-2\r\n");
    assert_int_equal(a.check.kind, CHECK_CRC32C);
    header(&a, "Link: <https://h/1>; rel=\"prev\", <https://h/2>; rel=\"next\"\r\n");
    assert_string_equal(a.next, "https://h/2");
    char message[ANSWER_MESSAGE_BYTES];
    assert_int_equal(bytes_printf(&a.body, NULL, "<E><Code>Bad</Code><Message>of \x1b[2J it</Message></E>"), ST_OK);
    answer_message(&a, message);
    assert_string_equal(message, "Bad: of ?[2J it");
    answer_done(&a);
}

#define S3_BEGIN "<ListBucketResult><IsTruncated>false</IsTruncated>"

static int s3_count(const char *xml) {
    struct listing_page page = { 0 };
    struct err e;
    if (listing_read_s3(xml, strlen(xml), &page, &e) != ST_OK)
        return -1;
    const int n = page.n;
    listing_page_done(&page);
    return n;
}

static void a_listing_of_s3_is_a_page_or_a_sentence(void **state) {
    (void)state;
    const char *object = S3_BEGIN
        "<Contents><Key>a</Key><Size>1</Size><ETag>\"e\"</ETag><Owner><Key>b</Key></Owner></Contents>"
        "<Contents><Key>folder/</Key><Size>0</Size></Contents></ListBucketResult>";
    struct listing_page page = { 0 };
    assert_int_equal(listing_read_s3(object, strlen(object), &page, NULL), ST_OK);
    assert_int_equal(page.n, 1);
    assert_string_equal(page.entries[0].path, "a");
    assert_string_equal(page.entries[0].etag, "\"e\"");
    listing_page_done(&page);
    assert_int_equal(s3_count(S3_BEGIN "</ListBucketResult>"), 0);
    assert_int_equal(s3_count(""), -1);
    assert_int_equal(s3_count("<Other/>"), -1);
    assert_int_equal(s3_count(S3_BEGIN), -1);
    assert_int_equal(s3_count(S3_BEGIN "<Contents><Key>a</Key></Contents></ListBucketResult>"), -1);
    assert_int_equal(s3_count("<ListBucketResult><IsTruncated>true</IsTruncated></ListBucketResult>"), -1);
    assert_int_equal(s3_count("<!DOCTYPE a [<!ENTITY x \"y\">]><ListBucketResult/>"), -1);
}

static void a_listing_of_uploads_is_a_page_or_a_sentence(void **state) {
    (void)state;
    const char *uploads =
        "<ListMultipartUploadsResult><NextKeyMarker>a</NextKeyMarker><NextUploadIdMarker>2</NextUploadIdMarker>"
        "<IsTruncated>true</IsTruncated><Upload><Key>a</Key><UploadId>1</UploadId><Owner><ID>x</ID></Owner>"
        "</Upload></ListMultipartUploadsResult>";
    const char *const bad[] = {
        "<ListBucketResult/>", "<ListMultipartUploadsResult><Upload><Key>a</Key></Upload></ListMultipartUploadsResult>",
        "<ListMultipartUploadsResult><Upload><UploadId>1</UploadId></Upload></ListMultipartUploadsResult>"
    };
    struct listing_page page = { 0 };
    assert_int_equal(listing_read_uploads(uploads, strlen(uploads), &page, NULL), ST_OK);
    assert_int_equal(page.n, 1);
    assert_string_equal(page.entries[0].path, "a");
    assert_string_equal(page.entries[0].etag, "1");
    assert_string_equal(page.next, "a");
    assert_string_equal(page.next_id, "2");
    listing_page_done(&page);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_int_equal(listing_read_uploads(bad[i], strlen(bad[i]), &page, NULL), ST_INVALID_ARGUMENT);
}

static void a_listing_of_hf_is_a_page_or_a_sentence(void **state) {
    (void)state;
    const char *json =
        "[{\"type\":\"directory\",\"path\":\"d\"},{\"type\":\"file\",\"path\":\"a\",\"size\":9,\"oid\":\"x\",\"lfs\":"
        "{\"oid\":\"e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855\",\"size\":5}}]";
    struct listing_page page = { 0 };
    char commit[41];
    assert_int_equal(listing_read_hf(json, strlen(json), &page, NULL), ST_OK);
    assert_true(page.n == 1 && page.entries[0].bytes == 5 && page.entries[0].check.kind == CHECK_SHA256);
    listing_page_done(&page);
    assert_int_equal(listing_read_hf("{}", 2, &page, NULL), ST_INVALID_ARGUMENT);
    assert_int_equal(listing_read_hf("[{\"type\":\"file\"}]", 17, &page, NULL), ST_INVALID_ARGUMENT);
    assert_int_equal(listing_read_commit("{\"sha\":\"../../x\"}", 17, commit, NULL), ST_INVALID_ARGUMENT);
}

static void check_digest(enum check_kind kind, const char *value) {
    struct check check = { 0 };
    struct digest *d = NULL;
    char sha256[SHA256_HEX];
    bool good = false;
    check_add(&check, kind, value, true);
    assert_int_equal(check.kind, kind);
    for (int wrong = 0; wrong < 2; wrong++) {
        assert_int_equal(digest_open(kind, 9, &d, NULL), ST_OK);
        digest_update(d, "1234", 4);
        digest_update(d, wrong ? "56780" : "56789", 5);
        digest_final(d, &check, sha256, &good);
        assert_int_equal(good, !wrong);
        d = digest_close(d);
    }
}

/* The check values of the CRCs are those of "123456789" in every catalogue; the others are from coreutils and git. */
static void the_checksums_of_stores_are_computed(void **state) {
    (void)state;
    check_digest(CHECK_CRC32, "cbf43926");
    check_digest(CHECK_CRC32C, "e3069283");
    check_digest(CHECK_MD5, "25f9e794323b453885f5181f1b624d0b");
    check_digest(CHECK_SHA1, "f7c3bc1d808e04732adf679965ccc34ca7ae3441");
    check_digest(CHECK_GIT, "e2e107ac61ac259b87c544f6e7a4eb03422c6c21");
    check_digest(CHECK_SHA256, "15e2b0d3c33891ebb0f1ef609ec419420c20e320ce94c65fbc8c3312448eb225");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_uri_has_a_root_a_revision_and_a_path),
        cmocka_unit_test(a_wrong_uri_is_refused),
        cmocka_unit_test(braces_are_written_out),
        cmocka_unit_test(wildcards_match_within_a_part_and_encoded_characters_match_themselves),
        cmocka_unit_test(addresses_are_encoded_and_names_can_be_read_again),
        cmocka_unit_test(headers_are_read_and_wrong_ones_change_nothing),
        cmocka_unit_test(a_listing_of_s3_is_a_page_or_a_sentence),
        cmocka_unit_test(a_listing_of_uploads_is_a_page_or_a_sentence),
        cmocka_unit_test(a_listing_of_hf_is_a_page_or_a_sentence),
        cmocka_unit_test(the_checksums_of_stores_are_computed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
