/* api/spec: specs with a program in place of a model. The sentences for single wrong fields are in specs/wrong.txt and
 * tests/e2e/test_programs.py. */
#include "api/codec/text.h"
#include "api/spec/digest.h"
#include "api/spec/spec.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define OK(call) assert_int_equal(call, ST_OK)

static Trainyard__V1__JobSpec *parse(const char *text) {
    ProtobufCMessage *msg = NULL;
    OK(codec_parse(&trainyard__v1__job_spec__descriptor, text, strlen(text), NULL, &msg, NULL));
    return (Trainyard__V1__JobSpec *)msg;
}

#define PROGRAM "name: a\nprogram: {command: [sh, -c, exit]"
static void a_program_needs_no_model_and_has_any_number_of_ranks(void **state) {
    (void)state;
    struct spec_problems problems = { 0 };
    Trainyard__V1__JobSpec *given = parse(PROGRAM "}\nparallel: {data: 3}"), *spec = NULL;
    OK(spec_resolve(given, &spec, NULL, NULL));
    assert_true(spec_is_program(spec) && !spec->model && !spec->data && !spec->train);
    assert_int_equal(spec_world_size(spec), 3);
    assert_int_equal(spec_steps(spec), 0);
    assert_int_equal(spec_micro_batches(spec), 0);
    assert_int_equal(spec_tokens_per_step(spec), 0);
    assert_false(spec_has_auto(spec));
    spec_free(spec);
    spec_free(given);
    given = parse(PROGRAM "}\ntrain: {steps: 1}\nparallel: {zero: 1}");
    assert_int_equal(spec_resolve(given, &spec, &problems, NULL), ST_INVALID_ARGUMENT);
    assert_int_equal(problems.n, 2);
    assert_string_equal(problems.lines[0], "train: cannot be given with program");
    assert_string_equal(problems.lines[1],
                        "parallel.zero: is for a model; a program has parallel.data ranks and divides "
                        "its work itself");
    spec_problems_done(&problems);
    spec_free(given);
}

static void code_needs_a_folder_that_the_client_has_packed(void **state) {
    (void)state;
#define ARCHIVE "archive: 0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define COMMIT  "commit: 0123456789abcdef0123456789abcdef01234567"
    static const char *const cases[][2] = {
        { "{" ARCHIVE "}", NULL },
        { "{" ARCHIVE ", git: {url: \"https://me@h/x@y:z\", " COMMIT "}}", NULL },
        { "{}", "program.code: needs a folder, or a commit of git" },
        { "{folder: .}", "program.code.folder: is a folder of the client's machine: `trainyard submit` uploads it and "
                         "sends program.code.archive in its place" },
        { "{archive: 0123}", "program.code.archive: is not a SHA-256 in 64 hexadecimal digits" },
        { "{git: {url: u, " COMMIT "}}",
          "program.code.git: is fetched by the client: `trainyard submit` adds program.code.archive" },
        { "{" ARCHIVE ", git: {url: u, commit: main}}",
          "program.code.git.commit: is not the full hash of a commit, which is 40 hexadecimal digits" },
        { "{" ARCHIVE ", git: {url: \"https://me:pw@h/x\", " COMMIT "}}",
          "program.code.git.url: must not contain a password: who may read the job could read it" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[400];
        struct spec_problems problems = { 0 };
        Trainyard__V1__JobSpec *spec = NULL;
        snprintf(text, sizeof text, PROGRAM ", code: %s}", cases[i][0]);
        Trainyard__V1__JobSpec *given = parse(text);
        status_t st = spec_resolve(given, &spec, &problems, NULL);
        assert_int_equal(st, cases[i][1] ? ST_INVALID_ARGUMENT : ST_OK);
        assert_int_equal(problems.n, cases[i][1] ? 1 : 0);
        if (cases[i][1])
            assert_string_equal(problems.lines[0], cases[i][1]);
        spec_problems_done(&problems);
        spec_free(spec);
        spec_free(given);
    }
}

/* Of each pair, the fields of a program, and the first sentence about them; NULL: none. */
static void check_cases(const char *const (*cases)[2], size_t n) {
    for (size_t i = 0; i < n; i++) {
        char text[400];
        struct spec_problems problems = { 0 };
        Trainyard__V1__JobSpec *spec = NULL;
        snprintf(text, sizeof text, PROGRAM ", %s}", cases[i][0]);
        Trainyard__V1__JobSpec *given = parse(text);
        status_t st = spec_resolve(given, &spec, &problems, NULL);
        assert_int_equal(st, cases[i][1] ? ST_INVALID_ARGUMENT : ST_OK);
        if (cases[i][1])
            assert_string_equal(problems.lines[0], cases[i][1]);
        spec_problems_done(&problems);
        spec_free(spec);
        spec_free(given);
    }
}

static void python_needs_requirements_that_its_hosts_can_find(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        { "code: {" ARCHIVE "}, python: {requirements: a/b.txt, version: \"3.11\"}", NULL },
        { "code: {" ARCHIVE "}, python: {requirements: uv.lock, project: true}", NULL },
        { "python: {requirements: /data/requirements.txt}", NULL },
        { "python: {}", "program.python.requirements: must be given" },
        { "python: {requirements: requirements.txt}",
          "program.python.requirements: 'requirements.txt' is not an absolute "
          "path; a path of the folder needs program.code" },
        { "code: {" ARCHIVE "}, python: {requirements: ../r.txt}",
          "program.python.requirements: '../r.txt' is not the path of a file in the folder of the code" },
        { "python: {requirements: /r, version: \"3.11.2\"}",
          "program.python.version: '3.11.2' is not a version such as 3.11" },
        { "python: {requirements: /r, version: \"3.1x\"}",
          "program.python.version: '3.1x' is not a version such as 3.11" },
        { "python: {requirements: /uv.lock, project: true}",
          "program.python.project: needs program.code, and a uv.lock or pyproject.toml as requirements" },
    };
    check_cases(cases, sizeof cases / sizeof *cases);
}

#define IMAGE_DIGEST "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"

static void an_image_is_one_that_every_host_gets_alike_and_has_its_own_packages(void **state) {
    (void)state;
    static const char *const cases[][2] = {
        { "image: {root: /data/images/torch}", NULL },
        { "image: {archive: /data/images/torch.tar}", NULL },
        { "image: {name: \"ghcr.io/team/torch:2@" IMAGE_DIGEST "\"}", NULL },
        { "image: {name: \"localhost:5000/torch@" IMAGE_DIGEST "\"}", NULL },
        { "image: {}", "program.image: needs one of root, name and archive" },
        { "image: {root: /data/a, archive: /data/b}", "program.image: needs one of root, name and archive" },
        { "image: {archive: a.tar}", "program.image.archive: 'a.tar' is not an absolute path" },
        { "image: {name: \"ghcr.io/team/torch:2\"}",
          "program.image.name: 'ghcr.io/team/torch:2' has no digest: add @sha256: and what `skopeo inspect --format "
          "{{.Digest}} docker://ghcr.io/team/torch:2` prints" },
        { "image: {name: \"torch@" IMAGE_DIGEST "\"}",
          "program.image.name: 'torch@" IMAGE_DIGEST "' is not REGISTRY/NAME@sha256:DIGEST" },
        { "image: {name: \"-x/torch@" IMAGE_DIGEST "\"}",
          "program.image.name: '-x/torch@" IMAGE_DIGEST "' is not REGISTRY/NAME@sha256:DIGEST" },
        { "image: {name: \"a.b/to rch@" IMAGE_DIGEST "\"}",
          "program.image.name: 'a.b/to rch@" IMAGE_DIGEST "' is not REGISTRY/NAME@sha256:DIGEST" },
        { "image: {root: images/torch}", "program.image.root: 'images/torch' is not an absolute path" },
        { "image: {root: /data/torch}, python: {requirements: /data/requirements.txt}",
          "program.python: is built for the files of a host, and program.image replaces them: install the packages in "
          "the image" },
    };
    check_cases(cases, sizeof cases / sizeof *cases);
}

static void the_check_on_a_host_does_not_depend_on_the_bytes_of_the_code(void **state) {
    (void)state;
    static const char *const texts[] = { PROGRAM ", code: {archive: a}}", PROGRAM ", code: {archive: b}}",
                                         PROGRAM "}" };
    uint8_t digests[3][SHA256_BYTES], checked[3][SHA256_BYTES];
    for (int i = 0; i < 3; i++) {
        Trainyard__V1__JobSpec *spec = parse(texts[i]);
        spec_digest(spec, "", digests[i]);
        spec_digest_checked(spec, "", checked[i]);
        spec_free(spec);
    }
    assert_memory_not_equal(digests[0], digests[1], SHA256_BYTES);
    assert_memory_equal(checked[0], checked[1], SHA256_BYTES);
    assert_memory_not_equal(checked[0], checked[2], SHA256_BYTES); /* a relative command needs code */
}

static void a_programs_digest_does_not_depend_on_the_order_of_its_variables(void **state) {
    (void)state;
    static const char *const texts[] = { PROGRAM ", environment: {A: x, B: y}}", PROGRAM ", environment: {B: y, A: x}}",
                                         PROGRAM ", environment: {A: y, B: x}}" };
    uint8_t digests[3][SHA256_BYTES], checked[SHA256_BYTES];
    for (int i = 0; i < 3; i++) {
        Trainyard__V1__JobSpec *spec = parse(texts[i]);
        spec_digest(spec, "", digests[i]);
        spec_digest_checked(spec, "", checked);
        spec_free(spec);
    }
    assert_memory_equal(digests[0], digests[1], SHA256_BYTES);
    assert_memory_not_equal(digests[0], digests[2], SHA256_BYTES);
}

static void a_range_of_ranks_and_a_number_replace_each_other(void **state) {
    (void)state;
    Trainyard__V1__JobSpec *given = parse(PROGRAM "}\nparallel: {data: {min: 2, max: 8}}"), *spec = NULL;
    ProtobufCMessage *msg = &given->base;
    OK(spec_resolve(given, &spec, NULL, NULL));
    assert_int_equal(spec_world_size(spec), 2);
    assert_int_equal(spec_max_world_size(spec), 8);
    assert_false(spec->parallel->_data_case);
    struct bytes text;
    bytes_init(&text, 1 << 20);
    OK(codec_print_json(&given->parallel->base, 0, &text, NULL));
    assert_non_null(strstr(text.data, "\"data\":{\"min\":2,\"max\":8}"));
    assert_null(strstr(text.data, "elastic"));
    bytes_done(&text);
    OK(codec_set_path(msg, "parallel.data.max", "4", NULL, NULL));
    assert_int_equal(given->parallel->elastic->max, 4);
    OK(codec_set_path(msg, "parallel.data", "3", NULL, NULL));
    assert_true(given->parallel->_data_case && given->parallel->data == 3 && !given->parallel->elastic);
    OK(codec_set_path(msg, "parallel.data", "{min: 1, max: 5}", NULL, NULL));
    assert_true(!given->parallel->_data_case && given->parallel->elastic->max == 5);
    OK(codec_set_path(msg, "parallel.data", "", NULL, NULL));
    assert_null(given->parallel->elastic);
    spec_free(spec);
    spec_free(given);
}

static void a_range_and_a_number_of_a_message_are_refused(void **state) {
    (void)state;
    struct spec_problems problems = { 0 };
    Trainyard__V1__JobSpec *given = parse(PROGRAM "}\nparallel: {data: {min: 2, max: 8}}"), *spec = NULL;
    given->parallel->data = 2;
    given->parallel->_data_case = TRAINYARD__V1__PARALLEL_SPEC___DATA_DATA;
    assert_int_equal(spec_resolve(given, &spec, &problems, NULL), ST_INVALID_ARGUMENT);
    assert_string_equal(problems.lines[0], "parallel.data: is either a number or a mapping, not both");
    spec_problems_done(&problems);
    spec_free(given);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_range_of_ranks_and_a_number_replace_each_other),
        cmocka_unit_test(a_range_and_a_number_of_a_message_are_refused),
        cmocka_unit_test(a_program_needs_no_model_and_has_any_number_of_ranks),
        cmocka_unit_test(code_needs_a_folder_that_the_client_has_packed),
        cmocka_unit_test(the_check_on_a_host_does_not_depend_on_the_bytes_of_the_code),
        cmocka_unit_test(python_needs_requirements_that_its_hosts_can_find),
        cmocka_unit_test(an_image_is_one_that_every_host_gets_alike_and_has_its_own_packages),
        cmocka_unit_test(a_programs_digest_does_not_depend_on_the_order_of_its_variables),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
