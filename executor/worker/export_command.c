/* trainyard-train export: a checkpoint as transformers opens it. */
#include "engine/pretrained/export.h"
#include "executor/worker/commands.h"

#include <getopt.h>
#include <stdio.h>

/* On stderr, as what the other exports say. */
static void print_done(const char *directory, const struct export_result *done) {
    fprintf(stderr, "%s: %lld parameters in fp32, %lld bytes (model.safetensors), config.json, ", directory,
            (long long)done->parameters, (long long)done->weights_bytes);
    if (done->tokenizer)
        fprintf(stderr, "tokenizer.json (%s)\n", done->tokenizer);
    else
        fprintf(stderr, "no tokenizer: the data were tokens\n");
}

int export_command(int argc, char **argv) {
    enum { HUGGINGFACE = 1, AVERAGE, OVERWRITE };
    static const struct option options[] = { { "huggingface", required_argument, NULL, HUGGINGFACE },
                                             { "average", no_argument, NULL, AVERAGE },
                                             { "overwrite", no_argument, NULL, OVERWRITE },
                                             { 0 } };
    const char *directory = NULL;
    struct export_options wanted = { 0 };
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (option == HUGGINGFACE)
            directory = optarg;
        else if (option == AVERAGE)
            wanted.average = true;
        else if (option == OVERWRITE)
            wanted.overwrite = true;
        else
            return EXIT_USAGE;
    }
    if (optind + 1 != argc || !directory) {
        fprintf(stderr, "trainyard-train: export takes one checkpoint's step folder and --huggingface DIR\n");
        return EXIT_USAGE;
    }
    struct export_result done = { 0 };
    struct err e = { "" };
    if (pretrained_export(argv[optind], directory, &wanted, &done, &e) != ST_OK) {
        fprintf(stderr, "trainyard-train: %s\n", e.msg);
        return EXIT_FAILED;
    }
    print_done(directory, &done);
    return EXIT_DONE;
}
