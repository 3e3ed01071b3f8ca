/* trainyard plan. */
#include "cli/command.h"
#include "cli/sibling.h"

#include <inttypes.h>
#include <stdio.h>

struct plan_args {
    struct text_list set;
    const char *device, *svg;
    int64_t ranks, memory;
};

static status_t run_plan(struct cli *c, const void *args_, char *const words[], struct err *e) {
    const struct plan_args *args = args_;
    struct sibling s = { .n = 0 };
    char ranks[24], memory[24];
    if (c->output == OUTPUT_YAML || c->output == OUTPUT_NAME)
        return err_set(e, ST_INVALID_ARGUMENT, "-o: a plan is printed as table or json");
    sibling_add(&s, "plan");
    sibling_add(&s, words[0]);
    for (size_t i = 0; i < args->set.n; i++) {
        sibling_add(&s, "--set");
        sibling_add(&s, args->set.items[i]);
    }
    if (args->device) {
        sibling_add(&s, "--device");
        sibling_add(&s, args->device);
    }
    if (args->ranks != OPTION_ABSENT) {
        snprintf(ranks, sizeof ranks, "%" PRId64, args->ranks);
        sibling_add(&s, "--ranks");
        sibling_add(&s, ranks);
    }
    if (args->memory != OPTION_ABSENT) {
        snprintf(memory, sizeof memory, "%" PRId64, args->memory);
        sibling_add(&s, "--memory");
        sibling_add(&s, memory);
    }
    if (args->svg) {
        sibling_add(&s, "--svg");
        sibling_add(&s, args->svg);
    }
    if (c->output == OUTPUT_JSON)
        sibling_add(&s, "--json");
    return sibling_become(&s, "trainyard-train", e);
}

static const struct option_row plan_options[] = {
    { "set", 0, "KEY.PATH=VALUE", "change a field of the file; may be repeated", OPTION_LIST,
      offsetof(struct plan_args, set), NULL },
    { "device", 'd', "NAME",
      "cpu (measured here); h200, h100, a100, v100 (data sheets); or a profile file; default: cpu, or h200 for "
      "cuda",
      OPTION_TEXT, offsetof(struct plan_args, device), NULL },
    { "ranks", 'r', "N", "plan for N ranks; default: the file's", OPTION_INT, offsetof(struct plan_args, ranks), NULL },
    { "memory", 0, "BYTES", "memory limit of a rank; default: the file's resources.memory_bytes, else the device's",
      OPTION_INT, offsetof(struct plan_args, memory), NULL },
    { "svg", 0, "FILE", "draw one step as SVG: each rank over time", OPTION_TEXT, offsetof(struct plan_args, svg),
      NULL },
    { 0 },
};

const struct command command_plan = {
    .name = "plan",
    .arguments = "FILE [--set KEY.PATH=VALUE]... [--device NAME] [--ranks N] [--memory BYTES] [--svg FILE]",
    .summary = "Reports what a job would need: bytes per rank, the largest micro-batch, the bubble, traffic, time.",
    .details = "Trains nothing and needs no controller. Reads the data's files.",
    .example = "trainyard plan job.yaml --set parallel.zero=3 --ranks 8 --device h200\n"
               "trainyard plan job.yaml -o json | jq .most_bytes",
    .options = plan_options,
    .args_bytes = sizeof(struct plan_args),
    .min_words = 1,
    .max_words = 1,
    .run = run_plan,
};
