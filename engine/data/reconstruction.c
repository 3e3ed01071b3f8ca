/* A sample is made from an image: the image is scaled and gray, its Fourier transform is computed, and a random set of
 * lines is kept, with noise added. Lines and noise depend on the seed and the number of the sample alone, so that every
 * layout and every restart makes the same measurements. A batch that needs only masks decodes no image. */
#include "engine/data/reconstruction.h"

#include "base/alloc.h"
#include "engine/data/image_set.h"
#include "engine/data/sampler.h"
#include "engine/data/source_kind.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

struct reconstruction {
    struct source source;
    struct image_set *splits[SOURCE_SPLITS]; /* validation: may be NULL */
    struct image_shape shape;
    struct measurement measurement;
    struct fourier *fourier;
};

/* Workspace for one sample. */
struct workspace {
    uint8_t *pixels, *rows;
    float *image;
    struct complex_number *numbers;
};

static void workspace_done(struct workspace *r) {
    free(r->pixels);
    free(r->rows);
    free(r->image);
    free(r->numbers);
}

static status_t workspace_make(struct workspace *r, int side, struct err *e) {
    const size_t n = (size_t)side * (size_t)side;
    r->pixels = malloc(n);
    r->rows = malloc((size_t)side);
    r->image = malloc(n * sizeof *r->image);
    r->numbers = malloc(n * sizeof *r->numbers);
    return r->pixels && r->rows && r->image && r->numbers ? ST_OK : err_errno(e, "allocate a sample of %zu pixels", n);
}

static const struct image_scale GREY = { .scale = { 1 / 255.0f } };

static status_t read_sample(const struct reconstruction *m, enum source_split split, int64_t seed, int64_t number,
                            int b, const struct batch *to, struct workspace *w, struct err *e) {
    const int N = m->shape.height;
    const size_t n = (size_t)N * (size_t)N;
    float *reference = to->of[BATCH_REFERENCE], *mask = to->of[BATCH_MASK], *y = to->of[BATCH_MEASUREMENTS];
    measurement_rows(&m->measurement, split, seed, number, w->rows);
    /* The mask depends on the sample's number alone: a batch that needs only masks decodes no image. */
    for (size_t i = 0; mask && i < n; i++)
        mask[(size_t)b * n + i] = w->rows[i / (size_t)N];
    if (!reference && !y)
        return ST_OK;
    const uint8_t *pixels;
    int64_t i = sampler_index(split, seed, m->source.info.samples[split], number);
    float *image = reference ? reference + (size_t)b * n : w->image;
    TRY(image_set_read(m->splits[split], i, w->pixels, &pixels, e));
    image_to_floats(&m->shape, pixels, (struct image_view){ 0 }, &GREY, image);
    if (y)
        measurement_make(&m->measurement, split, seed, number, w->rows, image, w->numbers, y + (size_t)b * 2 * n);
    return ST_OK;
}

static status_t read_samples(const struct source *s, enum source_split split, int64_t seed, int64_t first, int B,
                             const struct batch *to, struct err *e) {
    const struct reconstruction *m = (const struct reconstruction *)s;
    CLEANUP(workspace_done) struct workspace w = { 0 };
    TRY(workspace_make(&w, m->shape.height, e));
    for (int b = 0; b < B; b++)
        TRY(read_sample(m, split, seed, first + b, b, to, &w, e));
    return ST_OK;
}

static void close_reconstruction(struct source *s) {
    struct reconstruction *m = (struct reconstruction *)s;
    for (int split = 0; split < SOURCE_SPLITS; split++)
        image_set_close(m->splits[split]);
    fourier_free(m->fourier);
    free(m);
}

static status_t open_split(struct reconstruction *m, enum source_split split, const struct data_config *data,
                           const char *path, const struct member_files *files, int *side,
                           const struct source_options *options, struct err *e) {
    CLEANUP(image_files_freep) struct image_files *folder = NULL;
    TRY(files->n > 0 ? image_files_of_list(data->roots, files, false, NULL, options->progress, options->ctx, &folder, e)
                     : image_files_search(data->roots, path, &folder, e));
    if (*side == 0)
        TRY(image_files_first_side(folder, side, e));
    if (*side < 1 || *side > FOURIER_SIDE || (*side & (*side - 1)))
        return err_set(e, ST_INVALID_ARGUMENT,
                       "an image side of %d is not a power of two up to %d: give the size to which images are scaled",
                       *side, FOURIER_SIDE);
    const struct image_format format = { .size = *side, .shorter = *side, .channels = 1 };
    TRY(image_set_open(folder, &format, options, &m->splits[split], e));
    m->source.info.samples[split] = folder->n;
    folder = NULL;
    return ST_OK;
}

static status_t check(const struct data_reconstruction *config, struct err *e) {
    const double sampled = config->sampled_fraction, centre = config->center_fraction;
    if (!(sampled > 0 && sampled <= 1) || !(centre >= 0 && centre <= sampled))
        return err_set(
            e, ST_INVALID_ARGUMENT,
            "a sampled fraction of %g is not in (0, 1], or a center fraction of %g is not in [0, sampled fraction]",
            sampled, centre);
    if (!(config->noise >= 0 && config->noise <= 1e6))
        return err_set(e, ST_INVALID_ARGUMENT, "a noise of %g is not in [0, 1e6]", config->noise);
    return ST_OK;
}

static status_t open_splits(struct reconstruction *m, const struct data_config *data,
                            const struct source_options *options, struct err *e) {
    const struct data_reconstruction *config = &data->reconstruction;
    int side = config->size;
    TRY(check(config, e));
    TRY(open_split(m, SOURCE_TRAIN, data, config->train, &config->train_files, &side, options, e));
    if (config->validation_files.n > 0 || (config->validation && *config->validation))
        TRY(open_split(m, SOURCE_VALIDATION, data, config->validation, &config->validation_files, &side, options, e));
    m->fourier = fourier_new(side);
    m->shape = (struct image_shape){ side, side, 1 };
    int rows = (int)lround(config->sampled_fraction * side), centre = (int)lround(config->center_fraction * side);
    m->measurement = (struct measurement){ .side = side,
                                           .rows = rows ? rows : 1,
                                           .centre_rows = centre,
                                           .noise = (float)config->noise,
                                           .fourier = m->fourier };
    return image_set_digest(m->splits, SOURCE_SPLITS, m->source.info.sha256, e);
}

static status_t open_source(const struct data_config *config, const struct source_options *options, struct source **ret,
                            struct err *e) {
    struct reconstruction *m = alloc_zeroed(1, sizeof *m);
    m->source.read = read_samples;
    m->source.close = close_reconstruction;
    status_t st = open_splits(m, config, options, e);
    if (st != ST_OK) {
        close_reconstruction(&m->source);
        return st;
    }
    const int64_t N = m->shape.height;
    struct source_info *info = &m->source.info;
    info->memory_bytes = image_set_bytes(m->splits[SOURCE_TRAIN]) + image_set_bytes(m->splits[SOURCE_VALIDATION]);
    info->reading_threads = image_set_buffer_bytes(m->splits[SOURCE_TRAIN]) ? IMAGE_SET_READERS : 1;
    info->inputs[info->n_inputs++] = (struct source_input){ BATCH_MEASUREMENTS, 3, { 2, N, N } };
    info->inputs[info->n_inputs++] = (struct source_input){ BATCH_MASK, 3, { 1, N, N } };
    info->inputs[info->n_inputs++] = (struct source_input){ BATCH_REFERENCE, 3, { 1, N, N } };
    *ret = &m->source;
    return ST_OK;
}

static const struct member MEMBERS[] = {
    MEMBER_TREE(struct data_reconstruction, train, train_files),
    MEMBER_TREE(struct data_reconstruction, validation, validation_files),
    MEMBER_INT(struct data_reconstruction, size),
    MEMBER_REAL(struct data_reconstruction, sampled_fraction),
    MEMBER_REAL(struct data_reconstruction, center_fraction),
    MEMBER_REAL(struct data_reconstruction, noise),
};

const struct data_kind data_reconstruction = { .name = "reconstruction",
                                               .members = MEMBERS,
                                               .n_members = (int)(sizeof MEMBERS / sizeof *MEMBERS),
                                               .open = open_source };
