/* Byte-level BPE against values recorded from the `tokenizers` package (tokenizers/record.py). */
#include "base/cleanup.h"
#include "base/file.h"
#include "engine/data/tokenizer_document.h"

#include <jansson.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include <cmocka.h>

static char folder[] = "/tmp/ty-tokenizers-XXXXXX";

static const char *recorded(const char *name) {
    static char path[512];
    const char *root = getenv("TRAINYARD_SOURCE");
    snprintf(path, sizeof path, "%s/tests/engine/tokenizers/%s", root ? root : ".", name);
    return path;
}

static json_t *load(const char *name) {
    json_error_t where;
    json_t *root = json_load_file(recorded(name), JSON_ALLOW_NUL, &where);
    if (!root)
        fail_msg("%s: %s", name, where.text);
    return root;
}

static void put_file(const char *name, const char *text, char path[128]) {
    snprintf(path, 128, "%s/%s", folder, name);
    FILE *f = fopen(path, "w"); /* without an fsync: there are many */
    assert_non_null(f);
    assert_int_equal(fwrite(text, 1, strlen(text), f), strlen(text));
    fclose(f);
}

static struct tokenizer *opened(const char *path) {
    struct tokenizer *t = NULL;
    struct err e = { "" };
    if (tokenizer_open(NULL, path, &t, &e) != ST_OK)
        fail_msg("%s", e.msg);
    return t;
}

static int check_cases(const struct tokenizer *t, json_t *cases) {
    size_t i;
    json_t *one;
    json_array_foreach(cases, i, one) {
        json_t *text = json_object_get(one, "text"), *ids = json_object_get(one, "ids");
        const char *s = json_string_value(text);
        size_t bytes = json_string_length(text), n = 0, room = tokenizer_capacity(t, bytes);
        CLEANUP(freep) int32_t *tokens = malloc((room + 1) * sizeof *tokens);
        struct err e = { "" };
        if (tokenizer_encode(t, s, bytes, tokens, room, &n, &e) != ST_OK)
            fail_msg("case %zu: %s", i, e.msg);
        for (size_t j = 0; j < n || j < json_array_size(ids); j++)
            if (j >= n || (json_int_t)tokens[j] != json_integer_value(json_array_get(ids, j)) ||
                j >= json_array_size(ids))
                fail_msg("case %zu \"%s\": token %zu of %zu (%zu recorded) is %d, recorded %lld", i, s, j, n,
                         json_array_size(ids), j < n ? tokens[j] : -1,
                         (long long)json_integer_value(json_array_get(ids, j)));
        struct bytes back;
        bytes_init(&back, 1 << 16);
        assert_int_equal(tokenizer_decode(t, tokens, n, &back, &e), ST_OK);
        json_t *decoded = json_object_get(one, "decoded");
        assert_int_equal(back.len, json_string_length(decoded));
        if (back.len)
            assert_memory_equal(back.data, json_string_value(decoded), back.len);
        bytes_done(&back);
        /* A buffer that is too small is reported, and the last element of a buffer is used. */
        if (n) {
            size_t less;
            assert_int_equal(tokenizer_encode(t, s, bytes, tokens, n - 1, &less, &e), ST_RESOURCE_EXHAUSTED);
            assert_int_equal(tokenizer_encode(t, s, bytes, tokens, n, &less, &e), ST_OK);
        }
    }
    return (int)json_array_size(cases);
}

static void ids_and_texts_are_those_that_tokenizers_recorded(void **state) {
    (void)state;
    CLEANUP(json_decrefp) json_t *cases = load("cases.json");
    static const char *const names[] = { "gpt2", "llama3", "prefix" };
    for (size_t i = 0; i < 3; i++) {
        char file[32];
        snprintf(file, sizeof file, "%s.json", names[i]);
        CLEANUP(tokenizer_freep) struct tokenizer *t = opened(recorded(file));
        assert_int_equal(tokenizer_kind_of(t), TOKENIZER_BPE);
        assert_true(check_cases(t, json_object_get(cases, names[i])) > 100);

        /* The same from a checkpoint's manifest, and from an exported folder. */
        CLEANUP(freep) char *json = NULL;
        CLEANUP(tokenizer_freep) struct tokenizer *again = NULL, *exported = NULL;
        struct err e = { "" };
        assert_int_equal(tokenizer_to_json(t, &json, &e), ST_OK);
        assert_int_equal(tokenizer_from_json(json, &again, &e), ST_OK);
        check_cases(again, json_object_get(cases, names[i]));
        const char *document = tokenizer_huggingface(t);
        assert_int_equal(tokenizer_new_bpe(document, strlen(document), &exported, &e), ST_OK);
        assert_int_equal(tokenizer_vocabulary(exported), tokenizer_vocabulary(t));
    }
}

static void gpt2s_two_files_are_the_same_tokenizer(void **state) {
    (void)state;
    CLEANUP(json_decrefp) json_t *cases = load("cases.json"), *document = load("gpt2.json");
    json_t *model = json_object_get(document, "model"), *merges = json_object_get(model, "merges"), *merge;
    CLEANUP(freep) char *words = json_dumps(json_object_get(model, "vocab"), 0);
    struct bytes lines;
    struct err e;
    bytes_init(&lines, 1 << 20);
    assert_int_equal(bytes_printf(&lines, &e, "#version: 0.2\n"), ST_OK);
    size_t i;
    json_array_foreach(merges, i, merge)
        assert_int_equal(bytes_printf(&lines, &e, "%s\n", json_string_value(merge)), ST_OK);
    char vocabulary[128], text[128];
    put_file("vocab.json", words, vocabulary);
    put_file("merges.txt", lines.data, text);
    bytes_done(&lines);

    /* [MASK] is no part of the two files: its cases are left out. */
    CLEANUP(json_decrefp) json_t *plain = json_array();
    json_t *one;
    json_array_foreach(json_object_get(cases, "gpt2"), i,
                       one) if (!strstr(json_string_value(json_object_get(one, "text")), "[MASK]"))
        json_array_append(plain, one);
    CLEANUP(tokenizer_freep) struct tokenizer *by_file = opened(vocabulary), *by_folder = opened(folder);
    assert_true(check_cases(by_file, plain) > 100);
    assert_int_equal(tokenizer_vocabulary(by_folder), tokenizer_vocabulary(by_file));
}

/* One word of a million bytes: a heap, not a search per merge. The cache and the pieces of long texts change nothing.
 */
static void long_words_and_long_texts_are_encoded_alike_and_fast(void **state) {
    (void)state;
    enum { BYTES = 1 << 20 };
    CLEANUP(tokenizer_freep) struct tokenizer *t = opened(recorded("llama3.json"));
    CLEANUP(freep) char *text = malloc(BYTES);
    CLEANUP(freep) int32_t *tokens = malloc(BYTES * sizeof *tokens);
    static const char *const fills[] = { "a", "the", " ", "\n", "\xe2\x82\xac", "ab1 ,\n" };
    for (size_t f = 0; f < sizeof fills / sizeof *fills; f++) {
        struct err e = { "" };
        size_t n_fill = strlen(fills[f]), n = 0, n_bytes = BYTES / n_fill * n_fill;
        for (size_t i = 0; i < n_bytes; i++)
            text[i] = fills[f][i % n_fill];
        if (tokenizer_encode(t, text, n_bytes, tokens, BYTES, &n, &e) != ST_OK)
            fail_msg("%s", e.msg);
        struct bytes back;
        bytes_init(&back, 2 * BYTES);
        assert_int_equal(tokenizer_decode(t, tokens, n, &back, &e), ST_OK);
        assert_int_equal(back.len, n_bytes);
        assert_memory_equal(back.data, text, n_bytes);
        bytes_done(&back);
    }
}

#define VOCABULARY  "\"vocab\":{\"a\":0,\"b\":1,\"ab\":2}"
#define BYTE_LEVEL  "\"pre_tokenizer\":{\"type\":\"ByteLevel\",\"add_prefix_space\":false}"
#define MODEL(more) "\"model\":{\"type\":\"BPE\"," VOCABULARY "," more "}"

#define SPLIT(regex)    "{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":\"" regex "\"}}"
#define LAST            "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}"
#define SEQUENCE(steps) "{\"type\":\"Sequence\",\"pretokenizers\":[" steps "]}"

static void what_would_change_tokens_and_is_not_supported_is_refused_by_name(void **state) {
    (void)state;
    static const struct {
        const char *json, *says;
    } table[] = {
        { "", "not valid JSON" },
        { "[]", "model.type is not BPE" },
        { "{\"model\":{\"type\":\"WordPiece\"}}", "model.type is not BPE" },
        { "{\"normalizer\":{\"type\":\"NFC\"}," MODEL("\"merges\":[]") "," BYTE_LEVEL "}",
          "normalizer is not supported" },
        { "{" MODEL("\"merges\":[],\"unk_token\":\"x\"") "," BYTE_LEVEL "}", "model.unk_token is not supported" },
        { "{" MODEL("\"merges\":[],\"dropout\":0.1") "," BYTE_LEVEL "}", "model.dropout is not supported" },
        { "{" MODEL("\"merges\":[],\"byte_fallback\":true") "," BYTE_LEVEL "}", "model.byte_fallback" },
        { "{" MODEL("\"merges\":7") "," BYTE_LEVEL "}", "model.merges is not a list" },
        { "{" MODEL("\"merges\":[\"ab\"]") "," BYTE_LEVEL "}", "model.merges[0] is not a pair" },
        { "{" MODEL("\"merges\":[[\"a\"]]") "," BYTE_LEVEL "}", "model.merges[0] is not a pair" },
        { "{" MODEL("\"merges\":[\"a b\",\"a b\"]") "," BYTE_LEVEL "}", "merge 1 is a duplicate" },
        { "{" MODEL("\"merges\":[\"b a\"]") "," BYTE_LEVEL "}", "merge 0: its result is not in the vocabulary" },
        { "{" MODEL("\"merges\":[\"a c\"]") "," BYTE_LEVEL "}", "merge 0: its right part is not in the vocabulary" },
        { "{" MODEL("\"merges\":[]") "}", "does not end in ByteLevel" },
        { "{" MODEL("\"merges\":[]") ",\"pre_tokenizer\":{\"type\":\"Whitespace\"}}",
          "\"Whitespace\" is not supported" },
        { "{" MODEL("\"merges\":[]") ",\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{"
                                     "\"Regex\":\"(\"}}}",
          "cannot be compiled: missing closing parenthesis" },
        { "{" MODEL("\"merges\":[]") ",\"pre_tokenizer\":{\"type\":\"Split\",\"behavior\":\"Removed\",\"pattern\":{"
                                     "\"Regex\":\"x\"}}}",
          "the behavior \"Removed\"" },
        { "{" MODEL("\"merges\":[]") ",\"pre_tokenizer\":" SEQUENCE(SPLIT("x") ",{\"type\":\"ByteLevel\"}") "}",
          "add_prefix_space after other steps" },
        { "{" MODEL("\"merges\":[]") ",\"pre_tokenizer\":" SEQUENCE(LAST "," SPLIT("x")) "}",
          "\"Split\" follows ByteLevel" },
        { "{" MODEL("\"merges\":[]") ",\"pre_tokenizer\":" SEQUENCE(SPLIT("a") "," SPLIT("b") "," SPLIT("c") "," SPLIT(
              "d") "," SPLIT("e") "," SPLIT("f") "," SPLIT("g") "," SPLIT("h") "," SPLIT("i") "," LAST) "}",
          "more than 8 expressions" },
        { "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}," BYTE_LEVEL "}",
          "belongs to two tokens" },
        { "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}," BYTE_LEVEL "}", "-1 is outside" },
        { "{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":99999999},\"merges\":[]}," BYTE_LEVEL "}", "is outside" },
        { "{\"added_tokens\":[{\"id\":0,\"content\":\"x\"}]," MODEL("\"merges\":[]") "," BYTE_LEVEL "}",
          "added_tokens[0]: the number 0 belongs" },
        { "{\"added_tokens\":[{\"id\":5}]," MODEL("\"merges\":[]") "," BYTE_LEVEL "}",
          "added_tokens[0] has no content" },
        { "{\"added_tokens\":[{\"id\":5,\"content\":\"x\",\"lstrip\":true}]," MODEL("\"merges\":[]") "," BYTE_LEVEL "}",
          "added_tokens[0].lstrip is not supported" },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct tokenizer *t = NULL;
        struct err e = { "" };
        assert_int_equal(tokenizer_new_bpe(table[i].json, strlen(table[i].json), &t, &e), ST_INVALID_ARGUMENT);
        if (!strstr(e.msg, table[i].says))
            fail_msg("case %zu says \"%s\"", i, e.msg);
        assert_null(t);
    }
}

static void unusable_texts_and_files_are_one_sentence(void **state) {
    (void)state;
    struct err e = { "" };
    struct tokenizer *none = NULL;
    char path[128];
    put_file("broken.json", "{\"model\":\n{]}", path);
    assert_int_equal(tokenizer_open(NULL, path, &none, &e), ST_INVALID_ARGUMENT);
    assert_non_null(strstr(e.msg, "broken.json': it is not valid JSON"));
    assert_non_null(strstr(e.msg, "in line 2"));
    assert_int_equal(tokenizer_open(NULL, "/nowhere/tokenizer.json", &none, &e), ST_NOT_FOUND);
    assert_non_null(strstr(e.msg, "/nowhere/tokenizer.json"));
    assert_int_equal(tokenizer_open(NULL, "gpt2", &none, &e), ST_INVALID_ARGUMENT);
    assert_non_null(strstr(e.msg, "name the tokenizer.json of GPT-2"));

    static const char small[] = "{" MODEL("\"merges\":[\"a b\"]") "," BYTE_LEVEL "}";
    CLEANUP(tokenizer_freep) struct tokenizer *t = NULL;
    assert_int_equal(tokenizer_new_bpe(small, strlen(small), &t, &e), ST_OK);
    int32_t tokens[8];
    size_t n;
    assert_int_equal(tokenizer_encode(t, "aab", 3, tokens, 8, &n, &e), ST_OK);
    assert_int_equal(n, 2);
    assert_int_equal(tokens[1], 2);
    assert_int_equal(tokenizer_encode(t, "ac", 2, tokens, 8, &n, &e), ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "the vocabulary has no token for the byte 0x63");
    assert_int_equal(tokenizer_encode(t, "ab\xff", 3, tokens, 8, &n, &e), ST_INVALID_ARGUMENT);
    assert_string_equal(e.msg, "the text is not valid UTF-8 at byte 2");
    struct bytes back;
    bytes_init(&back, 100);
    assert_int_equal(tokenizer_decode(t, (int32_t[]){ 3 }, 1, &back, &e), ST_INVALID_ARGUMENT);
    bytes_done(&back);
}

/* Empty matches cut the text, as in Oniguruma. A match that ends before its own beginning is no match. */
static void patterns_may_match_nothing_but_never_backwards(void **state) {
    (void)state;
    static const char *const patterns[] = { "b*", "(?=b)", "(?=ab\\\\K)" };
    for (size_t i = 0; i < 3; i++) {
        char json[1024];
        int32_t tokens[8];
        size_t n = 0;
        struct err e = { "" };
        CLEANUP(tokenizer_freep) struct tokenizer *t = NULL;
        snprintf(json, sizeof json,
                 "{" MODEL("\"merges\":[\"a b\"]") ",\"pre_tokenizer\":" SEQUENCE("%s%s%s," LAST) "}",
                 "{\"type\":\"Split\",\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":\"", patterns[i], "\"}}");
        status_t made = tokenizer_new_bpe(json, strlen(json), &t, &e);
        if (i == 2) { /* newer versions of PCRE2 refuse it */
            assert_true(made == ST_INVALID_ARGUMENT ||
                        tokenizer_encode(t, "aab", 3, tokens, 8, &n, &e) == ST_INVALID_ARGUMENT);
            continue;
        }
        assert_int_equal(made, ST_OK);
        assert_int_equal(tokenizer_encode(t, "aab", 3, tokens, 8, &n, &e), ST_OK);
        assert_int_equal(n, 3); /* a a b: the merge would be over a cut */
    }
}

/* (a+)+[bc] on a long row of a's takes 2^n steps: the search ends with an error. */
static void a_pattern_that_explodes_is_a_sentence(void **state) {
    (void)state;
    static const char json[] = "{" MODEL(
        "\"merges\":[]") ",\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\","
                         "\"behavior\":\"Isolated\",\"pattern\":{\"Regex\":\"(?:(?:a|a)+)+[bc]\"}},"
                         "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":false}]}}";
    struct err e = { "" };
    CLEANUP(tokenizer_freep) struct tokenizer *t = NULL;
    assert_int_equal(tokenizer_new_bpe(json, strlen(json), &t, &e), ST_OK);
    char text[64];
    int32_t tokens[64];
    size_t n;
    memset(text, 'a', sizeof text);
    assert_int_equal(tokenizer_encode(t, text, 60, tokens, 64, &n, &e), ST_INVALID_ARGUMENT);
    assert_non_null(strstr(e.msg, "fails on the text: match limit exceeded"));
}

/* Spaces that a tokenizer might join or trim, quotes that JSON escapes, characters of one to four bytes, one that
 * combines with that before it, and what another tokenizer takes for a special token. */
static const char EXPORTED[] = "a  b\n\n\tc \"d\" \\ e. don't <|endoftext|> \x7f \xc3\xa9 e\xcc\x81 \xe6\x97\xa5 "
                               "\xf0\x9f\x98\x80 ?";

static struct tokenizer *tokenizer_to_export(enum tokenizer_kind kind) {
    static const uint32_t points[] = { '\t', '\n', ' ', '"', '\'', '.', '<', '>', '?',  '\\', 'a',   'b',    'c',
                                       'd',  'e',  'f', 'n', 'o',  't', 'x', '|', 0x7f, 0xe9, 0x301, 0x65e5, 0x1f600 };
    struct tokenizer *t = NULL;
    struct err e = { "" };
    if (kind == TOKENIZER_BYTE)
        t = tokenizer_new_byte();
    else if (tokenizer_new_char(points, sizeof points / sizeof *points, &t, &e) != ST_OK)
        fail_msg("%s", e.msg);
    return t;
}

static void document_of(const struct tokenizer *t, struct bytes *document, struct bytes *config) {
    bytes_init(document, 1 << 20);
    bytes_init(config, 1 << 20);
    assert_int_equal(tokenizer_document(t, document, NULL), ST_OK);
    assert_int_equal(tokenizer_document_config(t, 64, config, NULL), ST_OK);
}

/* What the words of the document are, and that our own reader takes a byte tokenizer's for one that makes the same
 * tokens. */
static void an_exported_tokenizer_has_the_same_words(void **state) {
    (void)state;
    CLEANUP(tokenizer_freep) struct tokenizer *chars = tokenizer_to_export(TOKENIZER_CHAR);
    CLEANUP(tokenizer_freep) struct tokenizer *bytes = tokenizer_to_export(TOKENIZER_BYTE), *read = NULL;
    struct bytes document, config;
    document_of(chars, &document, &config);
    json_t *root = json_loads(document.data, JSON_REJECT_DUPLICATES, NULL);
    const json_t *words = json_object_get(json_object_get(root, "model"), "vocab");
    assert_int_equal(json_object_size(words), tokenizer_vocabulary(chars));
    for (int i = 0; i < tokenizer_vocabulary(chars); i++) {
        struct bytes word;
        bytes_init(&word, 16);
        assert_int_equal(tokenizer_decode(chars, &i, 1, &word, NULL), ST_OK);
        assert_int_equal(bytes_append(&word, "", 1, NULL), ST_OK);
        assert_int_equal(json_integer_value(json_object_get(words, word.data)), i);
        bytes_done(&word);
    }
    json_decref(root);
    bytes_done(&document), bytes_done(&config);
    document_of(bytes, &document, &config);
    assert_int_equal(tokenizer_new_bpe(document.data, document.len, &read, NULL), ST_OK);
    for (int b = 0; b < 256; b++)
        assert_int_equal(tokenizer_token(read, (uint32_t)b), b);
    int32_t tokens[2 * sizeof EXPORTED];
    size_t n;
    assert_int_equal(
        tokenizer_encode(read, EXPORTED, sizeof EXPORTED - 1, tokens, sizeof tokens / sizeof *tokens, &n, NULL), ST_OK);
    assert_int_equal(n, sizeof EXPORTED - 1);
    for (size_t i = 0; i < n; i++)
        assert_int_equal(tokens[i], (unsigned char)EXPORTED[i]);
    bytes_done(&document), bytes_done(&config);
}

/* TRAINYARD_PYTHON names an interpreter with transformers, if python3 has none. */
static void an_exported_tokenizer_opens_in_transformers_with_the_same_tokens(void **state) {
    (void)state;
    const char *python = getenv("TRAINYARD_PYTHON");
    for (enum tokenizer_kind kind = TOKENIZER_CHAR; kind <= TOKENIZER_BYTE; kind++) {
        CLEANUP(tokenizer_freep) struct tokenizer *t = tokenizer_to_export(kind);
        struct bytes document, config;
        int32_t tokens[sizeof EXPORTED];
        char path[128], command[1024], said[400] = "";
        size_t n;
        document_of(t, &document, &config);
        snprintf(path, sizeof path, "%s/exported", folder);
        assert_int_equal(dir_make(path, 0700, NULL), ST_OK);
        put_file("exported/tokenizer.json", document.data, path);
        put_file("exported/tokenizer_config.json", config.data, path);
        put_file("exported/config.json", "{\"model_type\":\"gpt2\"}", path);
        put_file("exported/text", EXPORTED, path);
        assert_int_equal(tokenizer_encode(t, EXPORTED, sizeof EXPORTED - 1, tokens, sizeof EXPORTED, &n, NULL), ST_OK);
        snprintf(path, sizeof path, "%s/exported/tokens", folder);
        assert_int_equal(file_write_atomic(path, tokens, n * sizeof *tokens, 0600, NULL), ST_OK);
        bytes_done(&document), bytes_done(&config);
        snprintf(command, sizeof command, "%s %s %s/exported 2>/dev/null", python ? python : "python3",
                 recorded("open_in_transformers.py"), folder);
        FILE *script = popen(command, "r");
        assert_non_null(script);
        if (!fgets(said, sizeof said, script))
            *said = '\0';
        const int status = pclose(script);
        if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
            t = tokenizer_free(t); /* skip jumps */
            skip();
        }
        if (status != 0)
            fail_msg("%s: %s", tokenizer_kind_name(t), *said ? said : "transformers could not open the folder");
    }
}

int main(void) {
    if (!mkdtemp(folder))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ids_and_texts_are_those_that_tokenizers_recorded),
        cmocka_unit_test(an_exported_tokenizer_has_the_same_words),
        cmocka_unit_test(an_exported_tokenizer_opens_in_transformers_with_the_same_tokens),
        cmocka_unit_test(gpt2s_two_files_are_the_same_tokenizer),
        cmocka_unit_test(long_words_and_long_texts_are_encoded_alike_and_fast),
        cmocka_unit_test(what_would_change_tokens_and_is_not_supported_is_refused_by_name),
        cmocka_unit_test(unusable_texts_and_files_are_one_sentence),
        cmocka_unit_test(patterns_may_match_nothing_but_never_backwards),
        cmocka_unit_test(a_pattern_that_explodes_is_a_sentence),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    struct err e;
    status_t st = dir_remove(folder, &e);
    return failed || st != ST_OK;
}
