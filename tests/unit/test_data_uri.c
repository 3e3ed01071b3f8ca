/* URIs of data: which are patterns, what braces stand for, which remote URIs a spec has; the files that a pattern of
 * file:// matches; and the list of copies that trainyard-data reports. */
#include "api/codec/text.h"
#include "api/spec/data_uri.h"
#include "api/spec/secret_fields.h"
#include "api/spec/spec.h"
#include "base/limits.h"
#include "base/roots.h"
#include "engine/run/engine.h"
#include "executor/worker/config.h"
#include "executor/worker/config_pattern.h"
#include "executor/worker/data_list.h"

#include <fcntl.h>
#include <fnmatch.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/trainyard-data-uri-XXXXXX";
static const char *const FILES[] = { "a/part-1.txt",  "a/part-2.txt", "a/part-10.txt", "b/part-1.txt",
                                     "a/.part-3.txt", "a/other.bin",  "a/x*.txt",      "a/xy.txt" };

static int make_files(void **state) {
    (void)state;
    char path[160];
    assert_non_null(mkdtemp(folder));
    static const char *const folders[] = { "a", "b", "a/part-9.txt" };
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, folders[i]);
        assert_int_equal(mkdir(path, 0755), 0);
    }
    for (size_t i = 0; i < sizeof FILES / sizeof *FILES; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, FILES[i]);
        int fd = open(path, O_CREAT | O_WRONLY, 0644);
        assert_true(fd >= 0);
        assert_int_equal(write(fd, "text", 4), 4);
        close(fd);
    }
    snprintf(path, sizeof path, "%s/link", folder);
    return symlink("a", path);
}

static int remove_files(void **state) {
    (void)state;
    char command[200];
    snprintf(command, sizeof command, "rm -r '%s'", folder);
    return system(command);
}

/* ---- URIs ---- */

static void patterns_are_recognised_in_the_path_alone(void **state) {
    (void)state;
    assert_true(data_uri_is_pattern("s3://bucket/a*"));
    assert_true(data_uri_is_pattern("s3://bucket/a?"));
    assert_true(data_uri_is_pattern("hf://datasets/o/n/[ab]"));
    assert_true(data_uri_is_pattern("file:///a/{1..2}"));
    assert_true(data_uri_is_pattern("https://host/{a,b}"));
    assert_false(data_uri_is_pattern("https://host/a?key=1")); /* a query */
    assert_false(data_uri_is_pattern("https://[::1]:8000/a"));
    assert_false(data_uri_is_pattern("file:///a%2A"));
    assert_true(data_uri_is_remote("s3:///"));
    assert_false(data_uri_is_remote("file:///a"));
    assert_false(data_uri_is_remote("char"));
}

static void expands_to(const char *uri, const char *expected) {
    struct data_uris list;
    struct err e = { "" };
    char joined[512] = "";
    if (data_uri_expand(uri, 100, &list, &e) != ST_OK)
        fail_msg("%s: %s", uri, e.msg);
    for (size_t i = 0; i < list.n; i++)
        snprintf(joined + strlen(joined), sizeof joined - strlen(joined), "%s%s", i ? " " : "", list.all[i]);
    assert_string_equal(joined, expected);
    data_uris_free(&list);
}

static void braces_are_written_out_in_their_order(void **state) {
    (void)state;
    expands_to("file:///a", "file:///a");
    expands_to("file:///a{1..3}", "file:///a1 file:///a2 file:///a3");
    expands_to("file:///a{008..11}", "file:///a008 file:///a009 file:///a010 file:///a011");
    expands_to("file:///a{8..011}", "file:///a008 file:///a009 file:///a010 file:///a011");
    expands_to("s3://bucket/{b,,a}{0..1}",
               "s3://bucket/b0 s3://bucket/b1 s3://bucket/0 s3://bucket/1 s3://bucket/a0 s3://bucket/a1");
    expands_to("s3://bucket/[{]*", "s3://bucket/[{]*");
    struct data_uris list;
    struct err e = { "" };
    assert_int_equal(data_uri_expand("file:///a{0..9}{0..9}", 100, &list, &e), ST_OK);
    data_uris_free(&list);
    assert_int_equal(data_uri_expand("file:///a{0..9}{0..10}", 100, &list, &e), ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "the braces of 'file:///a{0..9}{0..10}' make more than 100 names");
    assert_int_equal(list.n, 0);
}

static bool part_matches(const char *part, const char *name) {
    char pattern[64];
    assert_true(data_uri_part_pattern(part, strlen(part), pattern, sizeof pattern));
    return fnmatch(pattern, name, FNM_PATHNAME) == 0;
}

static void a_decoded_character_stands_for_itself(void **state) {
    (void)state;
    char small[8];
    assert_true(part_matches("a*", "abc"));
    assert_true(part_matches("a%2A*", "a*c"));
    assert_false(part_matches("a%2A*", "abc"));
    assert_true(part_matches("a\\?", "a\\b"));
    assert_true(part_matches("%5Ba]", "[a]"));
    assert_false(data_uri_part_pattern("a%2", 3, small, sizeof small));
    assert_false(data_uri_part_pattern("abcdefgh", 8, small, sizeof small));
}

#define SPEC "{name: a, model: {gpt: {layers: 1, heads: 1, width: 8, context: 4}}, train: {steps: 1, global_batch: 1}, "

static Trainyard__V1__JobSpec *resolved(const char *rest) {
    char text[1024];
    ProtobufCMessage *msg = NULL;
    Trainyard__V1__JobSpec *spec = NULL;
    struct err e = { "" };
    snprintf(text, sizeof text, "%s%s}", SPEC, rest);
    if (codec_parse(&trainyard__v1__job_spec__descriptor, text, strlen(text), NULL, &msg, &e) != ST_OK ||
        spec_resolve((Trainyard__V1__JobSpec *)msg, &spec, NULL, &e) != ST_OK)
        fail_msg("%s: %s", text, e.msg);
    spec_free((Trainyard__V1__JobSpec *)msg);
    return spec;
}

static void the_remote_uris_of_a_spec_are_sorted_and_each_there_once(void **state) {
    (void)state;
    size_t n;
    Trainyard__V1__JobSpec *spec = resolved(
        "data: {tokens: {train: ['s3://bucket/b', 'file:///x', 's3://bucket/a*'], "
        "validation: ['s3://bucket/b', 'hf://o/n/v'], tokenizer: 'https://host/t.json'}}");
    const char **uris = data_uris_remote(spec, &n);
    assert_int_equal(n, 4);
    assert_string_equal(uris[0], "hf://o/n/v");
    assert_string_equal(uris[1], "https://host/t.json");
    assert_string_equal(uris[2], "s3://bucket/a*");
    assert_string_equal(uris[3], "s3://bucket/b");
    free(uris);
    spec_free(spec);
    spec = resolved("data: {text: {files: ['file:///x']}}");
    uris = data_uris_remote(spec, &n);
    assert_int_equal(n, 0);
    free(uris);
    spec_free(spec);
}

static void the_secrets_of_stores_have_the_names_of_their_fields(void **state) {
    (void)state;
    size_t n;
    Trainyard__V1__JobSpec *spec = resolved("data: {text: {files: ['s3://bucket/b', 'hf://o/n/a']}}, "
                                            "stores: {s3: {access_key: ID, secret_key: KEY}, hf: {token: TOKEN}}");
    struct secret_field *fields = spec_secret_fields(spec, &n);
    assert_int_equal(n, 3);
    assert_string_equal(fields[1].path, "stores.s3.secret_key");
    assert_string_equal(fields[1].variable, "s3.secret_key");
    assert_string_equal(fields[1].secret, "KEY");
    assert_string_equal(fields[2].variable, "hf.token");
    assert_true(spec_names_secrets(spec));
    free(fields);
    spec_free(spec);
    spec = resolved("data: {text: {files: ['s3://bucket/b']}}, stores: {s3: {endpoint: 'http://host:9000'}}");
    assert_false(spec_names_secrets(spec));
    spec_free(spec);
}

/* ---- files that a pattern matches ---- */

static status_t match(const char *pattern, const struct roots *roots, char joined[1024], struct err *e) {
    struct matched_paths found = { 0 };
    char uri[256];
    snprintf(uri, sizeof uri, "file://%s%s", folder, pattern);
    joined[0] = '\0';
    status_t st = config_pattern_match(uri, roots, &found, e);
    for (size_t i = 0; st == ST_OK && i < found.n; i++)
        snprintf(joined + strlen(joined), 1024 - strlen(joined), "%s%s", i ? " " : "", found.all[i] + strlen(folder));
    matched_paths_done(&found);
    return st;
}

static void files_match_sorted_by_their_bytes_and_each_once(void **state) {
    (void)state;
    static const char *const table[][2] = {
        { "/a/part-*.txt", "/a/part-1.txt /a/part-10.txt /a/part-2.txt" }, /* neither the folder nor .part-3.txt */
        { "/[ab]/part-1.txt", "/a/part-1.txt /b/part-1.txt" },
        { "/{b,a}/part-1.txt", "/a/part-1.txt /b/part-1.txt" },
        { "/a/part-{1..2}.txt", "/a/part-1.txt /a/part-2.txt" },
        { "/a/part-{1,[12]}.txt", "/a/part-1.txt /a/part-2.txt" },
        { "/a/part-?.txt", "/a/part-1.txt /a/part-2.txt" },
        { "/a/.part*", "/a/.part-3.txt" },
        { "/a/x%2A*", "/a/x*.txt" },
        { "/a/part-[!2]*", "/a/part-1.txt /a/part-10.txt" },
    };
    const char *paths[] = { folder };
    const struct roots roots = { .option = "--data-root", .paths = paths, .n = 1 };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        for (int with_roots = 0; with_roots < 2; with_roots++) {
            char joined[1024];
            struct err e = { "" };
            if (match(table[i][0], with_roots ? &roots : NULL, joined, &e) != ST_OK)
                fail_msg("%s: %s", table[i][0], e.msg);
            assert_string_equal(joined, table[i][1]);
        }
}

static void a_pattern_lists_folders_below_the_roots_only(void **state) {
    (void)state;
    char root[160], joined[1024];
    snprintf(root, sizeof root, "%s/a", folder);
    const char *paths[] = { root };
    const struct roots roots = { .option = "--data-root", .paths = paths, .n = 1 };
    struct matched_paths found;
    struct err e = { "" };
    assert_int_equal(match("/a/part-?.txt", &roots, joined, &e), ST_OK);
    assert_int_equal(match("/*/part-1.txt", &roots, joined, &e), ST_PERMISSION_DENIED);
    assert_non_null(strstr(e.msg, "lies below no --data-root"));
    assert_int_equal(match("/b/*", &roots, joined, &e), ST_PERMISSION_DENIED);
    const char *all[] = { folder };
    const struct roots whole = { .option = "--data-root", .paths = all, .n = 1 };
    assert_int_equal(match("/link/*", &whole, joined, &e), ST_PERMISSION_DENIED);
    assert_non_null(strstr(e.msg, "symbolic link"));
    assert_int_equal(match("/a/nothing*", &whole, joined, &e), ST_NOT_FOUND);
    assert_non_null(strstr(e.msg, "no file matches 'file:///tmp/trainyard-data-uri-"));
    assert_int_equal(config_pattern_match("file:///*/*/*/*/*/*/*/*/*/*/*/*/*/*/*/*/*", NULL, &found, &e),
                     ST_INVALID_ARGUMENT);
    assert_non_null(strstr(e.msg, "has more than 16 parts that are patterns"));
}

static struct config *opened(const char *files, const struct roots *roots, const struct config_copies *copies,
                             struct err *e) {
    char rest[512];
    struct config *c = NULL;
    snprintf(rest, sizeof rest, "data: {text: {files: [%s]}}", files);
    Trainyard__V1__JobSpec *spec = resolved(rest);
    status_t st = config_open(spec, roots, copies, &c, e);
    assert_true((st == ST_OK) == (c != NULL));
    spec_free(spec);
    return c;
}

static void a_configuration_has_the_files_of_a_pattern_in_place_of_it(void **state) {
    (void)state;
    char files[256], path[160];
    struct err e = { "" };
    snprintf(files, sizeof files, "'file://%s/b/part-1.txt', 'file://%s/a/part-*.txt'", folder, folder);
    struct config *c = opened(files, NULL, NULL, &e);
    assert_non_null(c);
    const struct data_text *text = &config_engine(c)->data.text;
    assert_int_equal(text->n_files, 4);
    snprintf(path, sizeof path, "%s/b/part-1.txt", folder);
    assert_string_equal(text->files[0], path);
    snprintf(path, sizeof path, "%s/a/part-2.txt", folder);
    assert_string_equal(text->files[3], path);
    config_close(c);
    snprintf(files, sizeof files, "'file://%s/b/part-1.txt', 'file://%s/c*'", folder, folder);
    assert_null(opened(files, NULL, NULL, &e));
    assert_non_null(strstr(e.msg, "data.text.files[1]: no file matches"));
}

/* ---- copies ---- */

struct object {
    int uri;
    const char *name, *sha256;
};

static void add_objects(struct data_list *l, const char *in, const struct object *objects, size_t n, bool again,
                        status_t expected) {
    Trainyard__V1__DataReport report = TRAINYARD__V1__DATA_REPORT__INIT;
    Trainyard__V1__DataObject all[8], *list[8];
    struct err e = { "" };
    for (size_t i = 0; i < n; i++) {
        trainyard__v1__data_object__init(list[i] = &all[i]);
        all[i].uri = objects[i].uri;
        all[i].name = (char *)(uintptr_t)objects[i].name;
        all[i].sha256 = (char *)(uintptr_t)objects[i].sha256;
    }
    report.folder = (char *)(uintptr_t)in;
    report.objects = list;
    report.n_objects = n;
    report.again = again;
    assert_int_equal(data_list_add(l, &report, &e), expected);
}

static void a_list_of_copies_comes_in_parts_and_may_begin_again(void **state) {
    (void)state;
    static const struct object first[] = { { 0, "s3://bkt/10", "a0" }, { 0, "s3://bkt/11", "a1" } };
    static const struct object second[] = { { 0, "s3://bkt/12", "a2" }, { 2, "s3://bkt/3", "b" } };
    static const struct object before[] = { { 1, "s3://bkt/2", "c" } }, beyond[] = { { 3, "s3://bkt/4", "d" } };
    static const struct object only_found[] = { { 2, "s3://bkt/3", "" } };
    size_t n;
    Trainyard__V1__JobSpec *spec = resolved("data: {text: {files: ['s3://bkt/3', 's3://bkt/1*', 's3://bkt/2']}}");
    struct data_list *l = data_list_new(spec);
    add_objects(l, "/c", first, 2, false, ST_OK);
    add_objects(l, "/c", second, 2, false, ST_OK);
    const struct data_list_object *found = data_list_find(l, "s3://bkt/1*", &n);
    assert_int_equal(n, 3);
    assert_string_equal(found[0].path, "/c/a0");
    assert_string_equal(found[2].name, "s3://bkt/12");
    assert_null(data_list_find(l, "s3://bkt/2", &n));
    assert_int_equal(n, 0);
    assert_string_equal(data_list_find(l, "s3://bkt/3", &n)->path, "/c/b");
    assert_int_equal(n, 1);
    assert_null(data_list_find(l, "s3://bkt/4", &n));
    assert_int_equal(n, 0);
    assert_string_equal(data_list_named(l, "the data file '/c/b' is empty")->name, "s3://bkt/3");
    assert_null(data_list_named(l, "nothing"));
    add_objects(l, "/c", before, 1, false, ST_INTERNAL);
    add_objects(l, "/c", beyond, 1, false, ST_INTERNAL);
    add_objects(l, "/c", only_found, 1, false, ST_INTERNAL);
    add_objects(l, "c", second + 1, 1, false, ST_INTERNAL);
    add_objects(l, "/d", first, 2, true, ST_OK);
    assert_null(data_list_find(l, "s3://bkt/3", &n));
    assert_string_equal(data_list_find(l, "s3://bkt/1*", &n)->path, "/d/a0");
    assert_int_equal(n, 2);
    data_list_free(l);
    spec_free(spec);
}

/* The folder of the copies is in one that no job may read, and stays closed to file:// URIs. */
static void only_a_remote_uri_leads_to_a_copy(void **state) {
    (void)state;
    char b[160], copy[160], file[256];
    snprintf(b, sizeof b, "%s/b", folder);
    snprintf(copy, sizeof copy, "%s/b/part-1.txt", folder);
    static const struct object objects[] = { { 0, "s3://bucket/key", "part-1.txt" } };
    struct roots_except except;
    struct err e = { "" };
    assert_int_equal(roots_except_find(folder, &except, &e), ST_OK);
    const char *paths[] = { folder }, *with_copies[] = { folder, b };
    const struct roots roots = { .option = "--data-root", .paths = paths, .n = 1, .except = &except, .n_except = 1 };
    struct roots of_copies = roots;
    of_copies.paths = with_copies;
    of_copies.n = 2;
    of_copies.opened = b;
    Trainyard__V1__JobSpec *spec = resolved("data: {text: {files: ['s3://bucket/key']}}");
    struct data_list *l = data_list_new(spec);
    add_objects(l, b, objects, 1, false, ST_OK);
    const struct config_copies copies = { .list = l, .roots = &of_copies };
    struct config *c = opened("'s3://bucket/key'", &roots, &copies, &e);
    if (!c)
        fail_msg("%s", e.msg);
    assert_string_equal(config_engine(c)->data.text.files[0], copy);
    const struct source_options options = { .context = 1 };
    struct source *s = NULL;
    if (source_open(&config_engine(c)->data, &options, &s, &e) != ST_OK)
        fail_msg("%s", e.msg);
    source_close(s);
    config_close(c);
    snprintf(file, sizeof file, "'file://%s'", copy);
    assert_null(opened(file, &roots, &copies, &e));
    assert_non_null(strstr(e.msg, "belongs to the service itself"));
    assert_null(opened("'s3://bucket/other'", &roots, &copies, &e));
    assert_non_null(strstr(e.msg, "data.text.files[0]: this host has 0 copies of 's3://bucket/other'"));
    assert_null(opened("'s3://bucket/key'", &roots, NULL, &e));
    assert_non_null(strstr(e.msg, "data.text.files[0]: 's3://bucket/key' is no file of this machine"));
    data_list_free(l);
    spec_free(spec);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(patterns_are_recognised_in_the_path_alone),
        cmocka_unit_test(braces_are_written_out_in_their_order),
        cmocka_unit_test(a_decoded_character_stands_for_itself),
        cmocka_unit_test(the_remote_uris_of_a_spec_are_sorted_and_each_there_once),
        cmocka_unit_test(the_secrets_of_stores_have_the_names_of_their_fields),
        cmocka_unit_test(files_match_sorted_by_their_bytes_and_each_once),
        cmocka_unit_test(a_pattern_lists_folders_below_the_roots_only),
        cmocka_unit_test(a_configuration_has_the_files_of_a_pattern_in_place_of_it),
        cmocka_unit_test(a_list_of_copies_comes_in_parts_and_may_begin_again),
        cmocka_unit_test(only_a_remote_uri_leads_to_a_copy),
    };
    return cmocka_run_group_tests(tests, make_files, remove_files);
}
