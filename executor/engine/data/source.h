/* The data of a job as numbered samples: whatever it is (text, token files, image folders, idx files,
 * reconstructions), a micro-batch is `source_read` of B samples from a number on.
 *
 *     struct data_config config = { .kind = DATA_TEXT, .text = { .files = paths, .n_files = 1, .tokenizer = "char" } };
 *     struct source_options options = { .context = 64 };
 *     TRY(source_open(&config, &options, &source, e));
 *     const struct source_info *info = source_info(source);      // info->vocabulary, info->inputs, ...
 *     struct batch batch = { .of = { [BATCH_TOKENS] = tokens, [BATCH_TARGETS] = targets } };
 *     TRY(source_read(source, SOURCE_TRAIN, seed, step * global_batch + k * micro_batch, micro_batch, &batch, e));
 *
 * Sample number i of a part is the same for whoever asks, at any time: which window or image it is comes from the
 * computed permutation of sampler.h, and what is drawn for it (crop, flip, noise, mask) from a counter-based generator
 * keyed by (seed, part, i). Nothing is remembered, so any layout, number of threads and resume has the same batches.
 * Training samples are numbered over the whole job; validation samples from 0 at every evaluation, never augmented.
 *
 * Threads: after open, any number of threads may read one source. */
#ifndef EXECUTOR_ENGINE_DATA_SOURCE_H
#define EXECUTOR_ENGINE_DATA_SOURCE_H

#include "base/cleanup.h"
#include "base/status.h"
#include "executor/engine/data/batch.h"

#include <stdbool.h>
#include <stdint.h>

struct source;
struct tokenizer; /* tokenizer.h */

enum data_kind { DATA_TEXT, DATA_TOKENS, DATA_IMAGES, DATA_IDX, DATA_RECONSTRUCTION };

/* Text files, read in this order as one text (corpus.h). */
struct data_text {
    const char *const *files;
    int n_files;
    const char *tokenizer;      /* "char", "byte", or a path as tokenizer_open takes it */
    double validation_fraction; /* the last part of the text, [0, 1); 0 = no validation */
};

/* Files of token numbers (shards.h), each list read as one text. */
struct data_tokens {
    const char *const *train, *const *validation;
    int n_train, n_validation; /* n_validation 0 = no validation */
    int token_bytes;           /* 2 or 4, of files without a header; 0 = 2 */
    const char *tokenizer;     /* for sampling, as in data_text; NULL or "" = none */
};

/* Drawn anew for every training sample: a random crop of the padded image (zeros around it, after normalisation black
 * becomes what black is), then left and right swapped with probability one half. */
struct data_augmentation {
    int crop_padding; /* pixels on each side; 0 = no crop */
    bool flip;
};

/* Folders with one folder of PNG or JPEG files per class (folder.h). */
struct data_images {
    const char *train;
    const char *validation;     /* NULL or "" = by validation_fraction */
    double validation_fraction; /* of the training folder's images, [0, 1); 0 = no validation */
    int size;                   /* pixels a side, at most SOURCE_SIDE; 0 = the shorter side of the first image */
    int channels;               /* 1 or 3; 0 = 3 */
    struct data_augmentation augment;
};

/* A file of images and one of labels (idx.c). */
struct data_idx {
    const char *train_images, *train_labels;
    const char *validation_images, *validation_labels; /* NULL or "" = no validation */
    struct data_augmentation augment;
};

/* Images that are seen through an undersampled, noisy measurement (reconstruction.h). */
struct data_reconstruction {
    const char *train;      /* a folder of PNG or JPEG files, searched through */
    const char *validation; /* NULL or "" = no validation */
    int size;               /* as in data_images */
    double sampled_fraction, center_fraction, noise;
};

/* Paths are borrowed until source_open returns. */
struct data_config {
    enum data_kind kind;
    union {
        struct data_text text;
        struct data_tokens tokens;
        struct data_images images;
        struct data_idx idx;
        struct data_reconstruction reconstruction;
    };
};

struct source_options {
    int context;    /* tokens a sample; text and tokens only */
    int vocabulary; /* the model's, so that every token read is below it; 0 = the data's own */
    int threads;    /* that open may use; 0 = 1 */
    /* Called now and then while open reads files; may be NULL. */
    void (*progress)(void *ctx);
    void *ctx;
};

enum source_part { SOURCE_TRAIN, SOURCE_VALIDATION, SOURCE_PARTS };

enum { SOURCE_INPUTS = 3, SOURCE_DIMS = 3, SOURCE_SHA256_HEX = 65, SOURCE_SIDE = 8192 };

/* One named array of a batch; the shape is one sample's, without B. */
struct source_input {
    enum batch_input input;
    int n_dims; /* 0 = one number a sample */
    int64_t dim[SOURCE_DIMS];
};

struct source_info {
    struct source_input inputs[SOURCE_INPUTS];
    int n_inputs;
    int64_t samples[SOURCE_PARTS];     /* different ones: windows, images; a part with 0 cannot be read */
    int64_t tokens[SOURCE_PARTS];      /* text and tokens */
    int vocabulary;                    /* text and tokens: tokens are 0 .. vocabulary - 1; else 0 */
    int classes;                       /* images and idx: labels are 0 .. classes - 1; else 0 */
    int reading_threads;               /* that a loader should have: 1, more where every read decodes images */
    const struct tokenizer *tokenizer; /* NULL where there is none; lives as long as the source */
    char sha256[SOURCE_SHA256_HEX];    /* of the data, hex: what a gang compares and a checkpoint records */
};

/* INVALID_ARGUMENT, NOT_FOUND, PERMISSION_DENIED, RESOURCE_EXHAUSTED: one sentence that names the file and, where one
 * is wrong, the place in it. A training part of no sample is INVALID_ARGUMENT, one of validation is not. */
MUST_CHECK status_t source_open(const struct data_config *config, const struct source_options *options,
                                struct source **ret, struct err *e);
struct source *source_close(struct source *s);
CLEANUP_DEFINE(struct source *, source_close)

const struct source_info *source_info(const struct source *s); /* lives as long as the source */

/* What this source says of an input, or NULL; and the numbers in one sample of it (0 where it has no such input). */
const struct source_input *source_find(const struct source *s, enum batch_input input);
int64_t source_elements(const struct source *s, enum batch_input input);

/* Samples first .. first + B - 1 of a part into those arrays of `to` that are not NULL and that the source has.
 * INVALID_ARGUMENT for validation where there is none. Files are read and decoded here: what is wrong with one is a
 * sentence as in source_open, FAILED_PRECONDITION when it changed since then. */
MUST_CHECK status_t source_read(const struct source *s, enum source_part part, int64_t seed, int64_t first, int B,
                                const struct batch *to, struct err *e);

#endif
