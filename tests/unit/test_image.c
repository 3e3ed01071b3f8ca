/* The JSON of an OCI layout: what is read from it, and what is refused. Layers are tested by whole images, in
 * tests/e2e/test_program_image.py. */
#include "base/cleanup.h"
#include "executor/image/layout.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define A "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define B "1123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static status_t index_read(const char *json, struct layout_digest *ret, bool *ret_index, struct err *e) {
    return layout_index_read(json, strlen(json), "x86_64", ret, ret_index, e);
}

static void an_index_names_the_manifest_of_this_kind_of_machine(void **state) {
    (void)state;
    struct layout_digest digest;
    bool index;
    struct err e;
    assert_int_equal(index_read("{\"manifests\": [{\"digest\": \"sha256:" A "\", \"platform\": {\"os\": \"linux\", "
                                "\"architecture\": \"arm64\"}}, {\"digest\": \"sha256:" B "\", \"platform\": "
                                "{\"os\": \"linux\", \"architecture\": \"amd64\"}}]}",
                                &digest, &index, &e),
                     ST_OK);
    assert_string_equal(digest.text, B);
    assert_false(index);
    assert_int_equal(index_read("{\"manifests\": [{\"digest\": \"sha256:" A "\", \"mediaType\": "
                                "\"application/vnd.oci.image.index.v1+json\"}]}",
                                &digest, &index, &e),
                     ST_OK);
    assert_string_equal(digest.text, A);
    assert_true(index);
}

static void wrong_indexes_are_refused(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        { "", "the index of the image is no JSON object" },
        { "[]", "the index of the image is no JSON object" },
        { "{}", "the image has no manifest for linux on amd64" },
        { "{\"manifests\": 1}", "the image has no manifest for linux on amd64" },
        { "{\"manifests\": [{}]}", "the index of the image names a manifest without a SHA-256" },
        { "{\"manifests\": [{\"digest\": \"sha256:../../x\"}]}",
          "the index of the image names a manifest without a SHA-256" },
        { "{\"manifests\": [{\"digest\": \"sha512:" A "\"}]}",
          "the index of the image names a manifest without a SHA-256" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct layout_digest digest;
        bool index;
        struct err e;
        assert_int_equal(index_read(cases[i][0], &digest, &index, &e), ST_INVALID_ARGUMENT);
        assert_string_equal(e.msg, cases[i][1]);
    }
}

static status_t manifest_read(const char *json, struct layout_manifest *ret, struct err *e) {
    return layout_manifest_read(json, strlen(json), ret, e);
}

static void a_manifest_has_a_config_and_layers(void **state) {
    (void)state;
    static struct layout_manifest m;
    struct err e;
    assert_int_equal(manifest_read("{\"config\": {\"digest\": \"sha256:" A "\"}, \"layers\": [{\"digest\": \"sha256:" B
                                   "\"}]}",
                                   &m, &e),
                     ST_OK);
    assert_string_equal(m.config.text, A);
    assert_int_equal(m.n_layers, 1);
    assert_string_equal(m.layers[0].text, B);
    assert_int_equal(manifest_read("{\"layers\": []}", &m, &e), ST_INVALID_ARGUMENT);
    assert_int_equal(manifest_read("{\"config\": {\"digest\": \"sha256:" A "\"}}", &m, &e), ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "the manifest of the image has no config or no layers");
    assert_int_equal(
        manifest_read("{\"config\": {\"digest\": \"sha256:" A "\"}, \"layers\": [{\"digest\": 3}]}", &m, &e),
        ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "layer 0 of the image has no SHA-256");
}

static void the_variables_of_a_config_are_read_but_those_of_trainyard(void **state) {
    (void)state;
    static const char json[] = "{\"architecture\": \"amd64\", \"config\": {\"Env\": [\"A=b=c\", \"=x\", \"none\", 3, "
                               "\"TRAINYARD_JOB=1\", \"E=\"]}}";
    CLEANUP(freep) char *variables = NULL;
    size_t n = 0;
    struct err e;
    assert_int_equal(layout_config_read(json, sizeof json - 1, "x86_64", &variables, &n, &e), ST_OK);
    assert_int_equal(n, sizeof "A=b=c\0E=");
    assert_memory_equal(variables, "A=b=c\0E=", n);
    char *other = NULL;
    assert_int_equal(layout_config_read(json, sizeof json - 1, "aarch64", &other, &n, &e), ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "the image is for amd64, and the host is arm64");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_index_names_the_manifest_of_this_kind_of_machine),
        cmocka_unit_test(wrong_indexes_are_refused),
        cmocka_unit_test(a_manifest_has_a_config_and_layers),
        cmocka_unit_test(the_variables_of_a_config_are_read_but_those_of_trainyard),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
