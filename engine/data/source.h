/* The data of a job as numbered samples. For every kind of data (text, token files, image folders, idx files,
 * reconstructions, mixtures), a caller makes a micro-batch by reading B samples from a number on.
 *
 *     struct data_config config = { .kind = &data_text, .text = { .files = paths, .n_files = 1 } };
 *     struct source_options options = { .context = 64 };
 *     TRY(source_open(&config, &options, &source, e));
 *     const struct source_info *info = source_info(source);      // info->vocabulary, info->inputs, ...
 *     struct batch batch = { .of = { [BATCH_TOKENS] = tokens, [BATCH_TARGETS] = targets } };
 *     TRY(source_read(source, SOURCE_TRAIN, seed, step * global_batch + k * micro_batch, micro_batch, &batch, e));
 *
 * Sample number i of a split (training or validation) is always the same. Its window or image comes from the computed
 * permutation of sampler.h, and its random values (crop, flip, noise, mask) from a counter-based generator keyed by
 * (seed, split, i). There is no state, so every layout, number of threads and resume gets the same batches. Training
 * samples are numbered over the whole job; validation samples from 0 at every evaluation, in order, without
 * augmentation. They do not depend on the seed, so that jobs with different seeds are judged on the same samples.
 *
 * Threads: after open, any number of threads may read one source. */
#ifndef ENGINE_DATA_SOURCE_H
#define ENGINE_DATA_SOURCE_H

#include "base/cleanup.h"
#include "base/member.h"
#include "base/status.h"
#include "engine/data/batch.h"

#include <stdbool.h>
#include <stdint.h>

struct source;
struct roots;
struct tokenizer; /* tokenizer.h */
struct token_cache;

struct data_kind; /* source_kind.h */

/* The kinds: data_NAME is in NAME.c. */
#define DATA_KINDS(KIND) KIND(text) KIND(tokens) KIND(images) KIND(idx) KIND(reconstruction) KIND(mixture)

#define DATA_DECLARE(name) extern const struct data_kind data_##name;
DATA_KINDS(DATA_DECLARE)
#undef DATA_DECLARE

/* NULL if the name is not in DATA_KINDS. */
const struct data_kind *data_kind_find(const char *name);

/* The settings of each kind. The spec's fields have the same names. */

/* Text files, read in order as one text (corpus.h). */
struct data_text {
    const char *const *files;
    int n_files;
    const char *const *validation; /* files of their own, with validation_fraction 0 */
    int n_validation;
    int format;                       /* enum text_form (text_file.h) */
    const char *document, *separator; /* as in struct text_format */
    const char *tokenizer;            /* "char", "byte", or a path for tokenizer_open */
    double validation_fraction;       /* the end of the text, [0, 1); 0 = no validation */
};

/* Token files (token_files.h); each list is read as one text. */
struct data_tokens {
    const char *const *train, *const *validation;
    int n_train, n_validation; /* n_validation 0 = no validation */
    int token_bytes;           /* 2 or 4, of files without a header; 0 = 2 */
    const char *tokenizer;     /* for sampling, as in data_text; NULL or "" = none */
};

/* A random part of an image, scaled to the size of the samples (image_crop.h): of its area, and of the ratio of width
 * and height. */
struct data_resized_crop {
    double min_scale, max_scale; /* (0, 1]; max_scale 0 = the whole image */
    double min_ratio, max_ratio;
};

/* Drawn anew for every training sample, in this order. */
struct data_augmentation {
    int crop_padding; /* pixels of black on each side before a random crop to the old size; 0 = no crop */
    bool flip;        /* horizontally, with probability one half */
    struct data_resized_crop resized_crop;   /* not with crop_padding */
    double brightness, contrast, saturation; /* image_color.h; 0 = unchanged */
    double mixup;                            /* alpha of mixup.h; 0 = samples are not mixed */
};

enum { DATA_CHANNELS = 3 };

/* Of each channel, for values 0 .. 1; n 0: 0.5, so that samples are -1 .. 1. */
struct data_normalization {
    double mean[DATA_CHANNELS], std[DATA_CHANNELS];
    int n_mean, n_std;
};

/* PNG or JPEG files in one folder per class, or samples in tar archives (image_files.h). */
struct data_images {
    const char *train;
    const char *validation;                            /* NULL or "" and no files = by validation_fraction */
    struct member_files train_files, validation_files; /* in place of the folders, if they have files */
    double validation_fraction;                        /* of the training folder's images, [0, 1); 0 = no validation */
    int size;     /* pixels a side, at most SOURCE_SIDE; 0 = the shorter side of the first image */
    int channels; /* 1 or 3; 0 = 3 */
    int resize;   /* pixels of the shorter side before the middle is cut out; 0 = size */
    struct data_augmentation augment;
    struct data_normalization normalize;
};

/* A file of images and one of labels (idx.c). */
struct data_idx {
    const char *train_images, *train_labels;
    const char *validation_images, *validation_labels; /* NULL or "" = no validation */
    struct data_augmentation augment;
    struct data_normalization normalize;
};

/* Images that are measured with undersampling and noise (reconstruction.h). */
struct data_reconstruction {
    const char *train;                                 /* a folder of PNG or JPEG files, searched recursively */
    const char *validation;                            /* NULL or "" = no validation */
    struct member_files train_files, validation_files; /* as in data_images, without classes */
    int size;                                          /* as in data_images */
    double sampled_fraction, center_fraction, noise;
};

/* Several texts and token files as one sequence of samples (mixture.c). */
enum { DATA_SOURCES_MAX = 32, DATA_PHASES_MAX = 32, DATA_SOURCE_NAME = 33 };
struct data_mixture {
    const struct data_mixture_source *sources;
    const struct data_mixture_phase *phases; /* after the first one, in order */
    int n_sources, n_phases;
};

/* Paths are borrowed until source_open returns, roots until source_close. */
struct data_config {
    const struct data_kind *kind;
    const struct roots *roots; /* that every path must lie below (base/roots.h); NULL: anywhere */
    union {
        struct data_text text;
        struct data_tokens tokens;
        struct data_images images;
        struct data_idx idx;
        struct data_reconstruction reconstruction;
        struct data_mixture mixture;
        double settings[32]; /* for any kind */
    };
};

/* Weights are relative, exact decimal numbers (base/shares.h). */
struct data_mixture_source {
    const char *name; /* less than DATA_SOURCE_NAME bytes */
    double weight;    /* until the first phase, and in the mean of the validation losses */
    struct data_config data;
};
struct data_mixture_phase {
    int64_t from_sample;              /* above that of the phase before; > 0 */
    double weights[DATA_SOURCES_MAX]; /* of all sources, in their order */
};

/* An int of the settings by its name; NULL if the kind has none. */
const int *data_int(const struct data_config *config, const char *name);

struct source_options {
    int context;                           /* tokens of a sample; text and tokens only */
    int vocabulary;                        /* the model's: every token must be below it; 0 = the data's own */
    int threads;                           /* for source_open; 0 = 1 */
    const struct token_cache *token_cache; /* of texts (token_cache.h); NULL: tokens are in memory */
    /* Called regularly while open reads files; may be NULL. */
    void (*progress)(void *ctx);
    void *ctx;
};

enum source_split { SOURCE_TRAIN, SOURCE_VALIDATION, SOURCE_SPLITS };

enum { SOURCE_INPUTS = 4, SOURCE_DIMS = 3, SOURCE_SHA256_HEX = 65, SOURCE_SIDE = 8192 };

/* One named array of a batch, with the shape of one sample, without B. */
struct source_input {
    enum batch_input input;
    int n_dims; /* 0 = one number for each sample */
    int64_t dim[SOURCE_DIMS];
};

/* One source of a mixture. */
struct mixed_source {
    char name[DATA_SOURCE_NAME];
    int64_t first, validation; /* its samples in the validation split: the first, and how many; 0 = none */
    double weight;             /* of its loss in the mean of the validation losses; they add up to 1, or all are 0 */
};

struct source_info {
    struct source_input inputs[SOURCE_INPUTS];
    int n_inputs;
    int64_t samples[SOURCE_SPLITS];    /* distinct windows or images; a split with 0 cannot be read */
    int64_t tokens[SOURCE_SPLITS];     /* text and tokens */
    int vocabulary;                    /* text and tokens: tokens are 0 .. vocabulary - 1; else 0 */
    int classes;                       /* images and idx: labels are 0 .. classes - 1; else 0 */
    int reading_threads;               /* recommended for a loader: 1, or more if every read decodes images */
    size_t memory_bytes;               /* that the source holds: tokens, pixels, labels, names of files, a tokenizer */
    const struct tokenizer *tokenizer; /* NULL if there is none; lives as long as the source */
    char sha256[SOURCE_SHA256_HEX];    /* of the data, hex: compared by a gang, stored in checkpoints */
    const struct mixed_source *mixed;  /* a mixture; else NULL */
    int n_mixed;
};

/* INVALID_ARGUMENT, NOT_FOUND, PERMISSION_DENIED, RESOURCE_EXHAUSTED: the message names the file and, for wrong
 * content, the position in it. An empty training split is INVALID_ARGUMENT, an empty validation split is not. */
MUST_CHECK status_t source_open(const struct data_config *config, const struct source_options *options,
                                struct source **ret, struct err *e);
struct source *source_close(struct source *s);
CLEANUP_DEFINE(struct source *, source_close)

const struct source_info *source_info(const struct source *s); /* lives as long as the source */

/* The description of an input, or NULL; and its numbers in one sample (0 if the source has no such input). */
const struct source_input *source_find(const struct source *s, enum batch_input input);
int64_t source_elements(const struct source *s, enum batch_input input);

/* How many of the training samples below `sample` come from this source of a mixture. */
int64_t source_mixed_samples(const struct source *s, int mixed, int64_t sample);

/* Reads samples first .. first + B - 1 of a split into the arrays of `to` that are not NULL and that the source has.
 * INVALID_ARGUMENT if the split is empty. Files are read and decoded here: errors are those of source_open, and
 * FAILED_PRECONDITION if a file has changed since. */
MUST_CHECK status_t source_read(const struct source *s, enum source_split split, int64_t seed, int64_t first, int B,
                                const struct batch *to, struct err *e);

#endif
