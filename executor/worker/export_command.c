/* trainyard-train export: a checkpoint as transformers opens it. */
#include "executor/engine/pretrained/export.h"
#include "executor/worker/commands.h"

#include <getopt.h>
#include <stdio.h>

int export_command(int argc, char **argv) {
    enum { HUGGINGFACE = 1, AVERAGE };
    static const struct option options[] = { { "huggingface", required_argument, NULL, HUGGINGFACE },
                                             { "average", no_argument, NULL, AVERAGE },
                                             { 0 } };
    const char *directory = NULL;
    bool average = false;
    for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
        if (option == HUGGINGFACE)
            directory = optarg;
        else if (option == AVERAGE)
            average = true;
        else
            return EXIT_USAGE;
    }
    if (optind + 1 != argc || !directory) {
        fprintf(stderr, "trainyard-train: export takes one checkpoint's step folder and --huggingface DIR\n");
        return EXIT_USAGE;
    }
    struct err e = { "" };
    if (pretrained_export(argv[optind], directory, average, &e) == ST_OK)
        return EXIT_DONE;
    fprintf(stderr, "trainyard-train: %s\n", e.msg);
    return EXIT_FAILED;
}
