/* trainyard-train sample CHECKPOINT: text from a step folder. */
#include "base/cores.h"
#include "engine/run/engine.h"
#include "executor/worker/commands.h"

#include <getopt.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

enum option_code { OPTION_THREADS = 1, OPTION_PROMPT, OPTION_TOKENS, OPTION_TEMPERATURE, OPTION_SEED, OPTION_AVERAGE };

static const struct option OPTIONS[] = {
    { "threads", required_argument, NULL, OPTION_THREADS },
    { "prompt", required_argument, NULL, OPTION_PROMPT },
    { "tokens", required_argument, NULL, OPTION_TOKENS },
    { "temperature", required_argument, NULL, OPTION_TEMPERATURE },
    { "seed", required_argument, NULL, OPTION_SEED },
    { "average", no_argument, NULL, OPTION_AVERAGE },
    { 0 },
};

static bool write_piece(void *ctx, const char *piece) {
    *(bool *)ctx = true;
    return fputs(piece, stdout) >= 0 && fflush(stdout) == 0;
}

static bool take_option(struct engine_sample_request *r, int code) {
    long long n = 0;
    char *end;
    switch (code) {
    case OPTION_PROMPT: r->prompt = optarg; return true;
    case OPTION_TEMPERATURE: r->temperature = strtod(optarg, &end); return *optarg && !*end;
    case OPTION_THREADS: r->threads = command_number(optarg, 1, 1024, &n) ? (int)n : 0; return r->threads > 0;
    case OPTION_TOKENS: r->tokens = command_number(optarg, 1, INT_MAX, &n) ? (int)n : 0; return r->tokens > 0;
    case OPTION_SEED: return command_number(optarg, LLONG_MIN, LLONG_MAX, &n) && ((r->seed = n), true);
    case OPTION_AVERAGE: r->average = true; return true;
    default: return false;
    }
}

int sample_command(int argc, char **argv) {
    bool begun = false;
    struct engine_sample_request request = {
        .prompt = "", .tokens = 200, .temperature = 0.8, .seed = 0, .write = write_piece, .ctx = &begun
    };
    for (int code; (code = getopt_long(argc, argv, "", OPTIONS, NULL)) != -1;)
        if (!take_option(&request, code))
            return code == '?' ? EXIT_USAGE : command_wrong_value(optarg);
    if (optind + 1 != argc) {
        fprintf(stderr, "trainyard-train: name one checkpoint (see --help)\n");
        return EXIT_USAGE;
    }
    request.directory = argv[optind];
    if (request.threads < 1)
        request.threads = cores_allowed();
    struct err e;
    status_t st = engine_sample(&request, &e);
    if (begun)
        putchar('\n');
    if (st == ST_OK)
        return EXIT_DONE;
    fprintf(stderr, "trainyard-train: %s\n", e.msg);
    return st == ST_INVALID_ARGUMENT ? EXIT_USAGE : EXIT_FAILED;
}
