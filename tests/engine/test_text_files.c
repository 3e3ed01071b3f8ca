/* Documents in JSON lines, WebDatasets and compressed files: the same documents must make the same tokens and the same
 * digest in every format, and what is no document must be refused with its line or its sample. The archives are written
 * by libarchive. */
#include "base/cleanup.h"
#include "base/file.h"
#include "engine/data/corpus.h"
#include "engine/data/text_file.h"
#include "engine/data/token_file_write.h"
#include "engine/data/token_files.h"

#include <archive.h>
#include <archive_entry.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

static char folder[] = "/tmp/ty-text-files-XXXXXX";

struct part {
    const char *name, *text; /* of a file in a tar archive; name NULL: the end */
};

typedef int filter_fn(struct archive *);

static int no_filter(struct archive *a) { return archive_write_add_filter_none(a); }

/* The parts as a tar archive; without names as one stream of bytes. */
static const char *file_with(const char *name, const struct part *parts, bool tar, filter_fn *filter) {
    static char paths[16][80];
    static int next;
    char *path = paths[next++ % 16];
    snprintf(path, sizeof paths[0], "%s/%s", folder, name);
    struct archive *a = archive_write_new();
    assert_int_equal(filter(a), ARCHIVE_OK);
    assert_int_equal(tar ? archive_write_set_format_ustar(a) : archive_write_set_format_raw(a), ARCHIVE_OK);
    archive_write_set_bytes_in_last_block(a, 1);
    assert_int_equal(archive_write_open_filename(a, path), ARCHIVE_OK);
    for (const struct part *p = parts; p->name; p++) {
        struct archive_entry *entry = archive_entry_new();
        archive_entry_set_pathname(entry, p->name);
        archive_entry_set_filetype(entry, AE_IFREG);
        archive_entry_set_size(entry, (la_int64_t)strlen(p->text));
        assert_int_equal(archive_write_header(a, entry), ARCHIVE_OK);
        assert_int_equal(archive_write_data(a, p->text, strlen(p->text)), strlen(p->text));
        archive_entry_free(entry);
    }
    assert_int_equal(archive_write_close(a), ARCHIVE_OK);
    archive_write_free(a);
    return path;
}

static const char *plain_with(const char *name, const char *text) {
    return file_with(name, (struct part[]){ { "all", text }, { NULL, NULL } }, false, no_filter);
}

/* The corpus of one file of characters; the sentence of the error in *e if NULL. */
static struct corpus *corpus_of(const char *path, enum text_form form, const char *field, const char *separator,
                                struct err *e) {
    const struct text_format format = { .form = form, .document = field, .separator = separator };
    struct corpus_config config = { .files = &path, .n_files = 1, .format = &format, .kind = TOKENIZER_CHAR };
    struct corpus *c = NULL;
    *e = (struct err){ "" };
    return corpus_open(&config, &c, e) == ST_OK ? c : NULL;
}

static const char WHOLE[] = "First \xc3\xa4.\nSecond:\t\"quoted\" \xf0\x9f\x98\x80|Third.";
static const char JSONL[] =
    "{\"id\": 1, \"text\": \"First \\u00e4.\\n\", \"meta\": {\"body\": \"First \xc3\xa4.\\n\"}}\n"
    "\r\n"
    "{\"text\": \"Second:\\t\\\"quoted\\\" \\ud83d\\ude00|\", \"meta\": {\"body\": \"Second:\\t\\\"quoted\\\" "
    "\xf0\x9f\x98\x80|\"}}\r\n"
    "{\"text\": \"\", \"meta\": {\"body\": \"\"}}\n"
    "{\"text\": \"Third.\", \"meta\": {\"body\": \"Third.\"}}"; /* no line feed at the end */
static const struct part SAMPLES[] = { { "a/1.json", "{\"text\": \"First \xc3\xa4.\\n\"}" },
                                       { "a/1.txt", "First \xc3\xa4.\n" },
                                       { "a/2.txt", "Second:\t\"quoted\" \xf0\x9f\x98\x80|" },
                                       { "a/2.json", "{\"text\": \"Second:\\t\\\"quoted\\\" \\ud83d\\ude00|\"}" },
                                       { "b.d/1.txt", "Third." },
                                       { "b.d/1.json", "{\"text\": \"Third.\"}" },
                                       { NULL, NULL } };

static void same_documents_are_the_same_data_in_every_format(void **state) {
    (void)state;
    const struct part jsonl[] = { { "all", JSONL }, { NULL, NULL } }, text[] = { { "all", WHOLE }, { NULL, NULL } };
    const struct {
        const char *path, *field;
        enum text_form form;
    } table[] = {
        { plain_with("text", WHOLE), NULL, TEXT_PLAIN },
        { file_with("text.gz", text, false, archive_write_add_filter_gzip), NULL, TEXT_PLAIN },
        { file_with("text.bz2", text, false, archive_write_add_filter_bzip2), NULL, TEXT_PLAIN },
        { file_with("text.xz", text, false, archive_write_add_filter_xz), NULL, TEXT_PLAIN },
        { file_with("text.zst", text, false, archive_write_add_filter_zstd), NULL, TEXT_PLAIN },
        { file_with("text.lz4", text, false, archive_write_add_filter_lz4), NULL, TEXT_PLAIN },
        { plain_with("lines", JSONL), NULL, TEXT_JSONL },
        { plain_with("lines", JSONL), "meta.body", TEXT_JSONL },
        { file_with("lines.zst", jsonl, false, archive_write_add_filter_zstd), "text", TEXT_JSONL },
        { file_with("samples.tar", SAMPLES, true, no_filter), NULL, TEXT_WEBDATASET },
        { file_with("samples.tgz", SAMPLES, true, archive_write_add_filter_gzip), "json.text", TEXT_WEBDATASET },
    };
    struct err e;
    CLEANUP(corpus_closep) struct corpus *first = corpus_of(table[0].path, TEXT_PLAIN, NULL, NULL, &e);
    const int64_t n = corpus_tokens(first, CORPUS_TRAIN);
    int32_t expected[64], tokens[64];
    assert_in_range(n, 30, 64);
    assert_int_equal(corpus_read(first, CORPUS_TRAIN, 0, (int)n, expected, &e), ST_OK);
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        CLEANUP(corpus_closep) struct corpus *c = corpus_of(table[i].path, table[i].form, table[i].field, "", &e);
        if (!c)
            fail_msg("%s: %s", table[i].path, e.msg);
        assert_string_equal(corpus_sha256(c), corpus_sha256(first));
        assert_int_equal(corpus_tokens(c, CORPUS_TRAIN), n);
        assert_int_equal(corpus_read(c, CORPUS_TRAIN, 0, (int)n, tokens, &e), ST_OK);
        assert_memory_equal(tokens, expected, (size_t)n * sizeof *tokens);
    }
}

static void a_separator_follows_each_document(void **state) {
    (void)state;
    static const char expected[] = "First \xc3\xa4.\n<>Second:\t\"quoted\" \xf0\x9f\x98\x80|<><>Third.<>";
    struct err e;
    CLEANUP(corpus_closep) struct corpus *text = corpus_of(plain_with("text", expected), TEXT_PLAIN, NULL, NULL, &e);
    CLEANUP(corpus_closep) struct corpus *lines = corpus_of(plain_with("lines", JSONL), TEXT_JSONL, NULL, "<>", &e);
    assert_string_equal(corpus_sha256(lines), corpus_sha256(text));

    const char *one = plain_with("one", "ab"), *two = plain_with("two", "c");
    const struct text_format format = { .form = TEXT_PLAIN, .separator = "\n\n" };
    struct corpus_config config = { .files = (const char *[]){ one, two }, .n_files = 2, .format = &format };
    CLEANUP(corpus_closep) struct corpus *files = NULL;
    CLEANUP(corpus_closep) struct corpus *same = corpus_of(plain_with("same", "ab\n\nc\n\n"), TEXT_PLAIN, 0, 0, &e);
    assert_int_equal(corpus_open(&config, &files, &e), ST_OK);
    assert_string_equal(corpus_sha256(files), corpus_sha256(same));
}

static void what_is_no_document_is_named(void **state) {
    (void)state;
    const struct part without[] = { { "1.txt", "a" }, { "2.json", "{}" }, { "3.txt", "c" }, { NULL, NULL } };
    const struct {
        const char *name, *text, *field, *says;
        enum text_form form;
    } table[] = {
        { "lines", "{\"text\": \"a\"}\n{\"body\": \"b\", \"id\": 2}\n", NULL,
          "line 2 has no field 'text'; it has 'body', 'id'", TEXT_JSONL },
        { "lines", "\n{\"text\": \"a\"\n", NULL, "line 2 is not JSON: '}' expected near end of file", TEXT_JSONL },
        { "lines", "{\"text\": [1]}\n", NULL, "line 1 has a field 'text' that is not a string", TEXT_JSONL },
        { "lines", "{\"meta\": 1}\n", "meta.text", "line 1 has no JSON object that contains 'text'", TEXT_JSONL },
        { "lines", "[1]\n", NULL, "line 1 has no JSON object that contains 'text'", TEXT_JSONL },
        { "lines", "{\"text\": \"\xff\"}\n", NULL, "line 1 is not JSON: ", TEXT_JSONL },
        { "lines", "{\"text\": \"a\\u0000\"}\n", NULL, "has a NUL at byte 1", TEXT_JSONL },
        { "not.tar", "certainly no archive", NULL, "cannot be read: ", TEXT_WEBDATASET },
    };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct err e;
        const char *path = plain_with(table[i].name, table[i].text);
        assert_null(corpus_of(path, table[i].form, table[i].field, NULL, &e));
        if (!strstr(e.msg, table[i].says) || !strstr(e.msg, path))
            fail_msg("'%s' is not in: %s", table[i].says, e.msg);
    }
    struct err e;
    assert_null(corpus_of(file_with("w.tar", without, true, no_filter), TEXT_WEBDATASET, NULL, NULL, &e));
    assert_non_null(strstr(e.msg, "w.tar': sample '2' has no file '.txt'"));
    assert_null(corpus_of(file_with("w.tar", without, true, no_filter), TEXT_WEBDATASET, "json.text", NULL, &e));
    assert_non_null(strstr(e.msg, "sample '1' has no file '.json.text'"));
}

static void a_truncated_file_is_refused(void **state) {
    (void)state;
    static char text[100000];
    memset(text, 'a', sizeof text - 1);
    const struct part parts[] = { { "1.txt", text }, { NULL, NULL } };
    const struct {
        const char *path;
        enum text_form form;
    } table[] = { { file_with("t.gz", parts, false, archive_write_add_filter_gzip), TEXT_PLAIN },
                  { file_with("t.zst", parts, false, archive_write_add_filter_zstd), TEXT_PLAIN },
                  { file_with("t.tar", parts, true, no_filter), TEXT_WEBDATASET } };
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        struct stat info;
        struct err e;
        assert_int_equal(stat(table[i].path, &info), 0);
        assert_int_equal(truncate(table[i].path, info.st_size / 2), 0);
        assert_null(corpus_of(table[i].path, table[i].form, NULL, NULL, &e));
        assert_non_null(strstr(e.msg, table[i].path));
    }
}

static void a_document_that_is_too_long_is_named(void **state) {
    (void)state;
    enum { TOO_LONG = 70 << 20 };
    char path[80];
    snprintf(path, sizeof path, "%s/long", folder);
    FILE *f = fopen(path, "w");
    assert_true(fputs("{\"text\": \"a\"}\n{\"text\": \"", f) > 0);
    for (int i = 0; i < TOO_LONG / 16; i++)
        assert_true(fputs("0123456789abcdef", f) > 0);
    fclose(f);
    struct err e;
    assert_null(corpus_of(path, TEXT_JSONL, NULL, NULL, &e));
    assert_non_null(strstr(e.msg, "long': line 2 has more than 67108864 bytes"));
    assert_int_equal(unlink(path), 0);
}

static void compressed_bytes_are_bytes_for_the_byte_tokenizer(void **state) {
    (void)state;
    const struct part parts[] = { { "all", "text" }, { NULL, NULL } };
    const char *path = file_with("b.gz", parts, false, archive_write_add_filter_gzip);
    struct corpus_config config = { .files = &path, .n_files = 1, .kind = TOKENIZER_BYTE };
    CLEANUP(corpus_closep) struct corpus *c = NULL;
    struct stat info;
    struct err e;
    assert_int_equal(stat(path, &info), 0);
    assert_int_equal(corpus_open(&config, &c, &e), ST_OK);
    assert_int_equal(corpus_tokens(c, CORPUS_TRAIN), info.st_size);
}

static void validation_files_are_the_validation_data(void **state) {
    (void)state;
    const char *train = plain_with("train", "abc\xc3\xa4"), *validation = plain_with("validation", "zc");
    struct corpus_config config = { .files = &train, .n_files = 1, .validation = &validation, .n_validation = 1 };
    const enum tokenizer_kind kinds[] = { TOKENIZER_CHAR, TOKENIZER_BYTE };
    for (int i = 0; i < 2; i++) {
        CLEANUP(corpus_closep) struct corpus *c = NULL, *other = NULL;
        struct err e;
        int32_t tokens[2];
        config.kind = kinds[i];
        config.validation_fraction = 0;
        assert_int_equal(corpus_open(&config, &c, &e), ST_OK);
        assert_int_equal(corpus_tokens(c, CORPUS_TRAIN), i ? 5 : 4);
        assert_int_equal(corpus_tokens(c, CORPUS_VALIDATION), 2);
        assert_int_equal(corpus_read(c, CORPUS_VALIDATION, 0, 2, tokens, &e), ST_OK);
        assert_int_equal(tokens[1], tokenizer_token(corpus_tokenizer(c), 'c'));
        assert_int_equal(tokens[0], tokenizer_token(corpus_tokenizer(c), 'z'));

        struct corpus_config all = { .files = (const char *[]){ train, validation }, .n_files = 2, .kind = kinds[i] };
        assert_int_equal(corpus_open(&all, &other, &e), ST_OK);
        assert_string_not_equal(corpus_sha256(c), corpus_sha256(other)); /* the same bytes, another split */
        config.validation_fraction = 0.1;
        CLEANUP(corpus_closep) struct corpus *none = NULL;
        assert_int_equal(corpus_open(&config, &none, &e), ST_INVALID_ARGUMENT);
    }
}

static void documents_become_token_files(void **state) {
    (void)state;
    char out[80];
    struct err e;
    int64_t n = 0;
    CLEANUP(tokenizer_freep) struct tokenizer *t = tokenizer_new_byte();
    const char *lines = plain_with("lines", JSONL);
    struct token_file_text text = {
        .files = &lines, .n_files = 1, .form = TEXT_JSONL, .separator = "|", .tokenizer = t
    };
    snprintf(out, sizeof out, "%s/out.bin", folder);
    assert_int_equal(token_file_write(&text, out, &n, &e), ST_OK);
    assert_int_equal(n, sizeof WHOLE - 1 + 4);
    struct stat info;
    assert_int_equal(stat(out, &info), 0);
    assert_int_equal(info.st_size, TOKEN_FILE_HEADER_BYTES + 2 * n);
    text.document = "absent";
    assert_int_equal(token_file_write(&text, out, &n, &e), ST_INVALID_ARGUMENT);
}

int main(void) {
    if (!mkdtemp(folder))
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_documents_are_the_same_data_in_every_format),
        cmocka_unit_test(a_separator_follows_each_document),
        cmocka_unit_test(what_is_no_document_is_named),
        cmocka_unit_test(a_truncated_file_is_refused),
        cmocka_unit_test(a_document_that_is_too_long_is_named),
        cmocka_unit_test(compressed_bytes_are_bytes_for_the_byte_tokenizer),
        cmocka_unit_test(validation_files_are_the_validation_data),
        cmocka_unit_test(documents_become_token_files),
    };
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    struct err e;
    status_t st = dir_remove(folder, &e);
    return failed || st != ST_OK;
}
