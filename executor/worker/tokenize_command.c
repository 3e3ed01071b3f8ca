/* trainyard-train tokenize: text files to one token file. */
#include "base/cores.h"
#include "engine/data/token_file_write.h"
#include "executor/worker/commands.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum option_code { OPTION_TOKENIZER = 1, OPTION_OUT, OPTION_THREADS };

static const struct option OPTIONS[] = {
    { "tokenizer", required_argument, NULL, OPTION_TOKENIZER },
    { "out", required_argument, NULL, OPTION_OUT },
    { "threads", required_argument, NULL, OPTION_THREADS },
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

int tokenize_command(int argc, char **argv) {
    const char *tokenizer = NULL, *out = NULL;
    struct token_file_text text = { .threads = cores_allowed() };
    for (int code; (code = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1;) {
        long long n = 0;
        if (code == OPTION_TOKENIZER)
            tokenizer = optarg;
        else if (code == OPTION_OUT)
            out = optarg;
        else if (code != OPTION_THREADS)
            return EXIT_USAGE;
        else if (!command_number(optarg, 1, 1024, &n))
            return command_wrong_value(optarg);
        else
            text.threads = (int)n;
    }
    if (!tokenizer || !out || optind == argc) {
        fprintf(stderr, "trainyard-train: tokenize needs --tokenizer, --out and text files (see --help)\n");
        return EXIT_USAGE;
    }
    text.files = (const char *const *)(argv + optind);
    text.n_files = argc - optind;
    struct err e;
    status_t st = tokenize(tokenizer, &text, out, &e);
    if (st == ST_OK)
        return EXIT_DONE;
    fprintf(stderr, "trainyard-train: %s\n", e.msg);
    return st == ST_INVALID_ARGUMENT ? EXIT_USAGE : EXIT_FAILED;
}
