/* api/spec/fields: each field of a spec is described, limited, and documented. */
#include "api/spec/advice.h"
#include "api/spec/fields.h"
#include "base/limits.h"
#include "tests/unit/spec_text.h"

static bool is_field(const ProtobufCMessageDescriptor *desc, const char *path) {
    size_t n = strcspn(path, ".");
    for (unsigned i = 0; i < desc->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &desc->fields[i];
        if (strlen(f->name) == n && memcmp(f->name, path, n) == 0)
            return !path[n] || (f->type == PROTOBUF_C_TYPE_MESSAGE && is_field(f->descriptor, path + n + 1));
    }
    return false;
}

/* Each path, as train.global_batch, in each sentence of advice. */
static void advice_names_only_fields_that_exist(void **state) {
    (void)state;
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz_0123456789.";
    const char *sentence;
    int paths = 0;
    for (size_t row = 0; (sentence = spec_advice_row(row)); row++)
        for (const char *at = sentence; *at;) {
            char word[128];
            size_t n = strspn(at, letters);
            snprintf(word, sizeof word, "%.*s", (int)n, at);
            at += n + strcspn(at + n, letters);
            while (*word && word[strlen(word) - 1] == '.')
                word[strlen(word) - 1] = '\0';
            if (!strchr(word, '.'))
                continue;
            if (!is_field(&trainyard__v1__job_spec__descriptor, word))
                fail_msg("%s: there is no field %s", sentence, word);
            paths++;
        }
    assert_in_range(paths, 40, 1000);
}

static double max_of(const ProtobufCMessageDescriptor *desc, const char *name) {
    const ProtobufCFieldDescriptor *f = protobuf_c_message_descriptor_get_field_by_name(desc, name);
    assert_non_null(f);
    return spec_field(desc, (unsigned)(f - desc->fields))->max;
}

static void ranges_end_at_the_limits_of_the_program(void **state) {
    (void)state;
    const ProtobufCMessageDescriptor *parallel = &trainyard__v1__parallel_spec__descriptor;
    assert_true(max_of(parallel, "data") == LIMIT_WORLD_SIZE);
    assert_true(max_of(parallel, "pipeline") == LIMIT_WORLD_SIZE);
    assert_true(max_of(parallel, "virtual_stages") == LIMIT_VIRTUAL_STAGES);
    assert_true(max_of(&trainyard__v1__train_spec__descriptor, "lanes") == LIMIT_WORLD_SIZE);
}

/* A number without a range would let any value through; text has choices, a format, or no meaning to the program. */
static void check_described(const ProtobufCMessageDescriptor *desc, const char *path) {
    for (unsigned i = 0; i < desc->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &desc->fields[i];
        const Trainyard__V1__SpecField *rule = spec_field(desc, i);
        char below[160];
        snprintf(below, sizeof below, "%s%s%s", path, *path ? "." : "", f->name);
        if (f->type == PROTOBUF_C_TYPE_MESSAGE && f->label != PROTOBUF_C_LABEL_REPEATED) {
            check_described(f->descriptor, below);
            continue;
        }
        bool number = f->type == PROTOBUF_C_TYPE_INT32 || f->type == PROTOBUF_C_TYPE_INT64 ||
                      f->type == PROTOBUF_C_TYPE_DOUBLE;
        bool text = f->type == PROTOBUF_C_TYPE_STRING;
        if (!*rule->help)
            fail_msg("%s has no help", below);
        if (number && !rule->_min_case && !rule->_above_case && !rule->n_choices && !*rule->also &&
            strcmp(below, "train.seed") != 0)
            fail_msg("%s has no range", below);
        if (text && !rule->n_choices && !rule->format)
            fail_msg("%s has neither choices nor a format", below);
    }
}

static void every_field_has_help_and_a_range(void **state) {
    (void)state;
    check_described(&trainyard__v1__job_spec__descriptor, "");
}

/* A message may be the mapping of another field: a text then has that field's name. */
static const char *name_in_text(const ProtobufCMessageDescriptor *desc, unsigned i) {
    for (unsigned j = 0; j < desc->n_fields; j++)
        if (strcmp(spec_field(desc, j)->mapping, desc->fields[i].name) == 0)
            return desc->fields[j].name;
    return desc->fields[i].name;
}

/* Every field that is no mapping of others, by its path in backticks. */
static void check_documented(const ProtobufCMessageDescriptor *desc, const char *path, const char *page) {
    for (unsigned i = 0; i < desc->n_fields; i++) {
        const ProtobufCFieldDescriptor *f = &desc->fields[i];
        char below[160], quoted[170];
        snprintf(below, sizeof below, "%s%s%s", path, *path ? "." : "", name_in_text(desc, i));
        snprintf(quoted, sizeof quoted, "`%s`", below);
        if (f->type == PROTOBUF_C_TYPE_MESSAGE && f->label != PROTOBUF_C_LABEL_REPEATED)
            check_documented(f->descriptor, below, page);
        else if (!strstr(page, quoted))
            fail_msg("docs/spec.md does not tell of %s", below);
    }
}

static void every_field_stands_in_the_manual(void **state) {
    (void)state;
    struct bytes page;
    read_table("../../../docs/spec.md", &page);
    check_documented(&trainyard__v1__job_spec__descriptor, "", page.data);
    bytes_done(&page);
}

static void every_example_of_the_manual_is_accepted(void **state) {
    (void)state;
    static const char begin[] = "```yaml\n", end[] = "\n```";
    struct bytes page;
    int found = 0;
    read_table("../../../docs/spec.md", &page);
    for (char *at = page.data; (at = strstr(at, begin)); found++) {
        at += sizeof begin - 1;
        char *stop = strstr(at, end);
        assert_non_null(stop);
        *stop = '\0';
        spec_free(resolve(at));
        at = stop + 1;
    }
    assert_int_equal(found, 5);
    bytes_done(&page);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_example_of_the_manual_is_accepted),
        cmocka_unit_test(advice_names_only_fields_that_exist),
        cmocka_unit_test(every_field_stands_in_the_manual),
        cmocka_unit_test(ranges_end_at_the_limits_of_the_program),
        cmocka_unit_test(every_field_has_help_and_a_range),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
