/* trainyard-train tokenize: text files to one token file. */
#include "api/spec/spec.h"
#include "base/cores.h"
#include "engine/data/token_file_write.h"
#include "executor/worker/commands.h"

#include <getopt.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum option_code { OPTION_TOKENIZER = 1, OPTION_OUT, OPTION_THREADS, OPTION_FORMAT, OPTION_DOCUMENT, OPTION_SEPARATOR };

static const struct option OPTIONS[] = {
    { "tokenizer", required_argument, NULL, OPTION_TOKENIZER },
    { "out", required_argument, NULL, OPTION_OUT },
    { "threads", required_argument, NULL, OPTION_THREADS },
    { "format", required_argument, NULL, OPTION_FORMAT },
    { "document", required_argument, NULL, OPTION_DOCUMENT },
    { "separator", required_argument, NULL, OPTION_SEPARATOR },
    { 0 },
};

static status_t tokenize(const char *tokenizer, struct token_file_text *text, const char *out, struct err *e) {
    CLEANUP(tokenizer_freep) struct tokenizer *t = NULL;
    int64_t n = 0;
    if (strcmp(tokenizer, "byte") == 0)
        t = tokenizer_new_byte();
    else
        TRY(tokenizer_open(NULL, tokenizer, &t, e));
    text->tokenizer = t;
    TRY(token_file_write(text, out, &n, e));
    printf("%lld\n", (long long)n);
    return ST_OK;
}

struct options {
    const char *tokenizer, *out, *format; /* format NULL: by the name of the first file */
    struct token_file_text text;
};

static int take_options(int argc, char **argv, struct options *o) {
    for (int code; (code = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1;) {
        long long n = 0;
        switch (code) {
        case OPTION_TOKENIZER: o->tokenizer = optarg; break;
        case OPTION_OUT: o->out = optarg; break;
        case OPTION_FORMAT: o->format = optarg; break;
        case OPTION_DOCUMENT: o->text.document = optarg; break;
        case OPTION_SEPARATOR: o->text.separator = optarg; break;
        case OPTION_THREADS:
            if (!command_number(optarg, 1, 1024, &n))
                return command_wrong_value(optarg);
            o->text.threads = (int)n;
            break;
        default: return EXIT_USAGE;
        }
    }
    return EXIT_DONE;
}

static bool form_of(const char *word, enum text_form *ret) {
    static const char *const FORMS[] = TEXT_FORMS;
    for (int i = 0; FORMS[i]; i++)
        if (strcmp(FORMS[i], word) == 0) {
            *ret = (enum text_form)i;
            return true;
        }
    return false;
}

int tokenize_command(int argc, char **argv) {
    struct options o = { .text.threads = cores_allowed() };
    int code = take_options(argc, argv, &o);
    if (code != EXIT_DONE)
        return code;
    if (!o.tokenizer || !o.out || optind == argc) {
        fprintf(stderr, "trainyard-train: tokenize needs --tokenizer, --out and text files (see --help)\n");
        return EXIT_USAGE;
    }
    if (!form_of(o.format ? o.format : spec_text_format(argv[optind]), &o.text.form))
        return command_wrong_value(o.format);
    o.text.files = (const char *const *)(argv + optind);
    o.text.n_files = argc - optind;
    struct err e;
    status_t st = tokenize(o.tokenizer, &o.text, o.out, &e);
    if (st == ST_OK)
        return EXIT_DONE;
    fprintf(stderr, "trainyard-train: %s\n", e.msg);
    return st == ST_INVALID_ARGUMENT ? EXIT_USAGE : EXIT_FAILED;
}
