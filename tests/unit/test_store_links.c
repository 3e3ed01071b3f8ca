/* Links to objects of S3: the signature of the example in Amazon's documentation. */
#include "service/controller/store_links.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static void the_signature_is_that_of_the_documentation(void **state) {
    (void)state;
    const struct store_link_keys keys = { .endpoint = "https://examplebucket.s3.amazonaws.com",
                                          .region = "us-east-1",
                                          .access_key = "AKIAIOSFODNN7EXAMPLE",
                                          .secret_key = "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
                                          .now_s = 1369353600,
                                          .valid_s = 86400 };
    char *link = store_link(&keys, "s3://test.txt");
    assert_string_equal(
        link, "https://examplebucket.s3.amazonaws.com/test.txt?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential="
              "AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request&X-Amz-Date=20130524T000000Z"
              "&X-Amz-Expires=86400&X-Amz-SignedHeaders=host&X-Amz-Signature="
              "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404");
    free(link);
}

static void a_path_is_encoded_once_and_public_objects_need_no_signature(void **state) {
    (void)state;
    const struct store_link_keys keys = {
        .endpoint = "http://127.0.0.1:1", .region = "x", .access_key = "", .secret_key = ""
    };
    char *link = store_link(&keys, "s3://bucket/a b/%2Ax%25/{1}~");
    assert_string_equal(link, "http://127.0.0.1:1/bucket/a%20b/%2Ax%25/%7B1%7D~");
    free(link);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_signature_is_that_of_the_documentation),
        cmocka_unit_test(a_path_is_encoded_once_and_public_objects_need_no_signature),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
