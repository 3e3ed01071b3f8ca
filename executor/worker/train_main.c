/* trainyard-train: one spec on this machine, without a service. For hosts that have nothing else, and for debugging. */
#include "executor/worker/commands.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char HELP[] =
    "usage: trainyard-train SPEC [options]                train the job in this YAML or JSON file on this machine\n"
    "       trainyard-train sample CHECKPOINT [options]   write text from a checkpoint's step folder\n"
    "       trainyard-train plan SPEC [options]           what the job would take, without training it\n"
    "       trainyard-train tokenize TEXT... [options]    write text files as one token file, and how many tokens it "
    "has\n"
    "       trainyard-train export CHECKPOINT [options]   write a folder that Hugging Face's transformers opens\n"
    "\n"
    "Trains the job of a spec on this machine, without a service.\n"
    "\n"
    "  --set KEY.PATH=VALUE   change one field of the spec; may be repeated\n"
    "  --checkpoints DIR      write DIR/step-<S>/ (default: the spec's checkpoint.directory, else none)\n"
    "  --resume DIR           start from the step folder DIR\n"
    "  --ranks N              data-parallel processes (sets parallel.data)\n"
    "  --threads N            compute threads of each rank (default: cores / ranks, fewer for a small model)\n"
    "  --profile FROM..TO     profile these steps: tables and traces in DIR/profile (default ./profile)\n"
    "  --plan                 print the plan of rank 0 and end\n"
    "  --json                 one JSON object a step on stdout, instead of a line a second\n"
    "  --token-cache DIR      keep the tokens of encoded texts in DIR: ranks and later runs read them there, and do "
    "not\n"
    "                         encode the texts again (default: each rank encodes, and keeps tokens in memory)\n"
    "  --token-cache-mib N    the maximum size of DIR (default: 10240)\n"
    "  --prompt TEXT  --tokens N  --temperature T  --seed S  --average\n"
    "                         for `sample`; averaged weights (train.ema) in place of the last\n"
    "  --tokenizer FILE  --out FILE     for `tokenize`: a tokenizer.json (or `byte`), and the file to write\n"
    "  --format F  --document NAME  --separator TEXT\n"
    "                         for `tokenize`: what TEXT contains (text, jsonl, webdataset; default: by its name), the\n"
    "                         document in it, and what follows each document; as in a spec's data.text\n"
    "  --device NAME|FILE  --memory BYTES  --svg FILE     for `plan`: the device that it is for (cpu, measured here;\n"
    "                         v100, a100, h100, h200; or a profile), what a rank may take, the step as a picture;\n"
    "                         --ranks N plans N (pipeline x a power of two), each with its samples;\n"
    "                         --data-root DIR: data below it may be read ('': none; default: all that this user may\n"
    "                         read);\n"
    "                         --data-except PATH: but not this file, or what is below this folder\n"
    "  --huggingface DIR  --average  --overwrite\n"
    "                         for `export`: the folder to write; averaged weights (train.ema) in place of the last;\n"
    "                         into a folder that is not empty\n"
    "  --help  --version\n"
    "\n"
    "With `resources.accelerator: cuda` rank r trains on the r-th GPU that CUDA_VISIBLE_DEVICES leaves to be seen.\n"
    "Ctrl-C ends at the next step, with a checkpoint. Exit status: 0 done, 1 failed, 2 wrong usage or spec, 3 "
    "stopped.\n"
    "\n"
    "example: trainyard-train job.yaml --set train.steps=200 --checkpoints /tmp/run\n"
    "         trainyard-train sample /tmp/run/step-200 --prompt 'ROMEO:' --tokens 200\n";

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} COMMANDS[] = {
    { "plan", plan_command },
    { "sample", sample_command },
    { "tokenize", tokenize_command },
    { "export", export_command },
};

/* libgomp reads its settings before main, so the program sets them and executes itself again. With a short spin,
 * other processes can use the cores: on two busy cores a step took a quarter of the time that it takes with
 * libgomp's default; on idle cores both take the same. */
static void settle_threads(char **argv) {
    if (getenv("GOMP_SPINCOUNT") || getenv("OMP_WAIT_POLICY"))
        return;
    if (setenv("GOMP_SPINCOUNT", "1000", 0) == 0)
        execv("/proc/self/exe", argv);
}

bool command_number(const char *text, long long min, long long max, long long *ret) {
    char *end;
    *ret = strtoll(text, &end, 10);
    return *text && !*end && *ret >= min && *ret <= max;
}

int command_wrong_value(const char *value) {
    fprintf(stderr, "trainyard-train: '%s' is not a value of that option\n", value);
    return EXIT_USAGE;
}

int main(int argc, char **argv) {
    settle_threads(argv); /* returns if /proc is missing */
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0) {
            fputs(HELP, stdout);
            return EXIT_DONE;
        }
        if (strcmp(argv[i], "--version") == 0) {
            puts("trainyard-train " TRAINYARD_VERSION);
            return EXIT_DONE;
        }
    }
    for (size_t i = 0; argc > 1 && i < sizeof COMMANDS / sizeof *COMMANDS; i++)
        if (strcmp(argv[1], COMMANDS[i].name) == 0)
            return COMMANDS[i].run(argc - 1, argv + 1);
    return train_command(argc, argv);
}
