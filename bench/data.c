/* bench_data: how fast one thread reads data. Prints one JSON object.
 *
 *     bench_data text TOKENIZER FILE      the file's text in pieces of 1 MiB to tokens
 *     bench_data images FOLDER SIZE       all images of a labelled folder, decoded and resized
 *     bench_data loader FOLDER SIZE THREADS BATCH IMAGES
 *                                         batches of random parts of them, flipped and normalised, made by threads */
#include "base/clock.h"
#include "base/file.h"
#include "engine/data/loader.h"
#include "engine/data/source.h"
#include "engine/data/tokenizer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static status_t bench_text(const char *tokenizer, const char *path, struct err *e) {
    enum { PIECE = 1 << 20 };
    CLEANUP(tokenizer_freep) struct tokenizer *t = NULL;
    struct bytes text;
    bytes_init(&text, (size_t)1 << 30);
    TRY(tokenizer_open(NULL, tokenizer, &t, e));
    TRY(file_read(path, &text, e));
    CLEANUP(freep) int32_t *tokens = malloc((2 * PIECE + 1) * sizeof *tokens);
    if (!tokens)
        return err_errno(e, "allocate tokens");
    size_t all = 0;
    int64_t begun = clock_mono_ns();
    for (size_t at = 0, n; at < text.len; at += PIECE) {
        size_t bytes = text.len - at < PIECE ? text.len - at : PIECE;
        TRY(tokenizer_encode(t, text.data + at, bytes, tokens, 2 * PIECE + 1, &n, e));
        all += n;
    }
    printf("{\"bytes\": %zu, \"tokens\": %zu, \"seconds\": %.6f}\n", text.len, all,
           (double)(clock_mono_ns() - begun) * 1e-9);
    bytes_done(&text);
    return ST_OK;
}

static status_t bench_images(const char *folder, int size, struct err *e) {
    CLEANUP(source_closep) struct source *s = NULL;
    const struct data_config config = { .kind = &data_images, .images = { .train = folder, .size = size } };
    int64_t begun = clock_mono_ns();
    TRY(source_open(&config, &(struct source_options){ .threads = 1 }, &s, e));
    printf("{\"images\": %lld, \"seconds\": %.6f}\n", (long long)source_info(s)->samples[SOURCE_TRAIN],
           (double)(clock_mono_ns() - begun) * 1e-9);
    return ST_OK;
}

/* The first epoch warms the caches up. */
static status_t bench_loader(char *const *arguments, struct err *e) {
    const int size = atoi(arguments[1]), threads = atoi(arguments[2]), batch = atoi(arguments[3]);
    const int64_t images = atoll(arguments[4]);
    CLEANUP(source_closep) struct source *s = NULL;
    CLEANUP(loader_closep) struct loader *l = NULL;
    const struct data_config config = { .kind = &data_images,
                                        .images = {
                                            .train = arguments[0],
                                            .size = size,
                                            .augment = { .flip = true, .resized_crop = { 0.08, 1, 0.75, 4 / 3.0 } },
                                            .normalize = { { 0.485, 0.456, 0.406 }, { 0.229, 0.224, 0.225 }, 3, 3 } } };
    TRY(source_open(&config, &(struct source_options){ .threads = 1 }, &s, e));
    const int64_t warm = source_info(s)->samples[SOURCE_TRAIN] / batch, steps = warm + (images + batch - 1) / batch;
    const struct loader_config how = { .source = s,
                                       .seed = 1,
                                       .global_batch = batch,
                                       .micro_batch = batch,
                                       .micro_batches = &(int){ 0 },
                                       .n_micro_batches = 1,
                                       .steps = steps,
                                       .threads = threads };
    TRY(loader_open(&how, &l, e));
    int64_t begun = clock_mono_ns();
    for (int64_t step = 0; step < steps; step++) {
        struct loader_batch next;
        if (step == warm)
            begun = clock_mono_ns();
        TRY(loader_next(l, step, 0, &next, e));
    }
    printf("{\"images\": %lld, \"seconds\": %.6f}\n", (long long)((steps - warm) * batch),
           (double)(clock_mono_ns() - begun) * 1e-9);
    return ST_OK;
}

int main(int argc, char **argv) {
    struct err e = {
        "usage: bench_data text TOKENIZER FILE | images FOLDER SIZE | loader FOLDER SIZE THREADS BATCH IMAGES"
    };
    status_t st = ST_INVALID_ARGUMENT;
    if (argc == 4 && strcmp(argv[1], "text") == 0)
        st = bench_text(argv[2], argv[3], &e);
    else if (argc == 4 && strcmp(argv[1], "images") == 0)
        st = bench_images(argv[2], atoi(argv[3]), &e);
    else if (argc == 7 && strcmp(argv[1], "loader") == 0)
        st = bench_loader(argv + 2, &e);
    if (st != ST_OK)
        fprintf(stderr, "bench_data: %s\n", e.msg);
    return st != ST_OK;
}
