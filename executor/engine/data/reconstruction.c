#include "executor/engine/data/reconstruction.h"

#include "executor/engine/data/pictures.h"
#include "executor/engine/data/sampler.h"
#include "executor/engine/data/source_kind.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>

struct reconstruction {
    struct source source;
    struct pictures *parts[SOURCE_PARTS]; /* validation: may be NULL */
    struct picture_shape shape;
    struct measurement measurement;
    struct fourier *fourier;
};

/* Room to make one sample in. */
struct room {
    uint8_t *pixels, *rows;
    float *image;
    struct complex_number *numbers;
};

static void room_done(struct room *r) {
    free(r->pixels);
    free(r->rows);
    free(r->image);
    free(r->numbers);
}

static status_t room_make(struct room *r, int side, struct err *e) {
    const size_t n = (size_t)side * (size_t)side;
    r->pixels = malloc(n);
    r->rows = malloc((size_t)side);
    r->image = malloc(n * sizeof *r->image);
    r->numbers = malloc(n * sizeof *r->numbers);
    return r->pixels && r->rows && r->image && r->numbers ? ST_OK : err_errno(e, "allocate a sample of %zu pixels", n);
}

static status_t read_sample(const struct reconstruction *m, enum source_part part, int64_t seed, int64_t number, int b,
                            const struct batch *to, struct room *room, struct err *e) {
    const int N = m->shape.height;
    const size_t n = (size_t)N * (size_t)N;
    float *reference = to->of[BATCH_REFERENCE], *mask = to->of[BATCH_MASK], *y = to->of[BATCH_MEASUREMENTS];
    measurement_rows(&m->measurement, part, seed, number, room->rows);
    for (size_t i = 0; mask && i < n; i++)
        mask[(size_t)b * n + i] = room->rows[i / (size_t)N];
    if (!reference && !y)
        return ST_OK;
    const uint8_t *pixels;
    int64_t i = sampler_start(seed, part == SOURCE_TRAIN ? SAMPLER_TRAIN : SAMPLER_VALIDATION,
                              m->source.info.samples[part], number);
    float *image = reference ? reference + (size_t)b * n : room->image;
    TRY(pictures_read(m->parts[part], i, room->pixels, &pixels, e));
    picture_numbers(&m->shape, pixels, (struct picture_view){ 0 }, 1 / 255.0f, 0, image);
    if (y)
        measurement_make(&m->measurement, part, seed, number, room->rows, image, room->numbers, y + (size_t)b * 2 * n);
    return ST_OK;
}

static status_t read_samples(const struct source *s, enum source_part part, int64_t seed, int64_t first, int B,
                             const struct batch *to, struct err *e) {
    const struct reconstruction *m = (const struct reconstruction *)s;
    CLEANUP(room_done) struct room room = { 0 };
    TRY(room_make(&room, m->shape.height, e));
    for (int b = 0; b < B; b++)
        TRY(read_sample(m, part, seed, first + b, b, to, &room, e));
    return ST_OK;
}

static void close_reconstruction(struct source *s) {
    struct reconstruction *m = (struct reconstruction *)s;
    for (int part = 0; part < SOURCE_PARTS; part++)
        pictures_close(m->parts[part]);
    fourier_free(m->fourier);
    free(m);
}

static status_t open_part(struct reconstruction *m, enum source_part part, const char *path, int *side,
                          const struct source_options *options, struct err *e) {
    CLEANUP(folder_freep) struct folder *folder = NULL;
    TRY(folder_search(path, &folder, e));
    if (*side == 0)
        TRY(pictures_side(folder, side, e));
    if (*side < 1 || *side > FOURIER_SIDE || (*side & (*side - 1)))
        return err_set(e, ST_INVALID_ARGUMENT,
                       "an image side of %d is no power of two up to %d: give the size that images are brought to",
                       *side, FOURIER_SIDE);
    TRY(pictures_open(folder, *side, 1, options, &m->parts[part], e));
    m->source.info.samples[part] = folder->n;
    folder = NULL;
    return ST_OK;
}

static status_t check(const struct data_reconstruction *config, struct err *e) {
    const double sampled = config->sampled_fraction, centre = config->center_fraction;
    if (!(sampled > 0 && sampled <= 1) || !(centre >= 0 && centre <= sampled))
        return err_set(e, ST_INVALID_ARGUMENT,
                       "a sampled fraction of %g is not within (0, 1], or the center fraction of %g not within it",
                       sampled, centre);
    if (!(config->noise >= 0 && config->noise <= 1e6))
        return err_set(e, ST_INVALID_ARGUMENT, "a noise of %g is negative or no number", config->noise);
    return ST_OK;
}

static status_t open_parts(struct reconstruction *m, const struct data_reconstruction *config,
                           const struct source_options *options, struct err *e) {
    int side = config->size;
    TRY(check(config, e));
    TRY(open_part(m, SOURCE_TRAIN, config->train, &side, options, e));
    if (config->validation && *config->validation)
        TRY(open_part(m, SOURCE_VALIDATION, config->validation, &side, options, e));
    TRY(fourier_new(side, &m->fourier, e));
    m->shape = (struct picture_shape){ side, side, 1 };
    int rows = (int)lround(config->sampled_fraction * side), centre = (int)lround(config->center_fraction * side);
    m->measurement = (struct measurement){ .side = side,
                                           .rows = rows ? rows : 1,
                                           .centre_rows = centre,
                                           .noise = (float)config->noise,
                                           .fourier = m->fourier };
    return pictures_digest(m->parts, SOURCE_PARTS, m->source.info.sha256, e);
}

status_t source_open_reconstruction(const struct data_config *config, const struct source_options *options,
                                    struct source **ret, struct err *e) {
    struct reconstruction *m = calloc(1, sizeof *m);
    if (!m)
        return err_errno(e, "allocate a source");
    m->source.read = read_samples;
    m->source.close = close_reconstruction;
    status_t st = open_parts(m, &config->reconstruction, options, e);
    if (st != ST_OK) {
        close_reconstruction(&m->source);
        return st;
    }
    const int64_t N = m->shape.height;
    struct source_info *info = &m->source.info;
    info->reading_threads = pictures_room(m->parts[SOURCE_TRAIN]) ? PICTURES_READERS : 1;
    info->inputs[info->n_inputs++] = (struct source_input){ BATCH_MEASUREMENTS, 3, { 2, N, N } };
    info->inputs[info->n_inputs++] = (struct source_input){ BATCH_MASK, 3, { 1, N, N } };
    info->inputs[info->n_inputs++] = (struct source_input){ BATCH_REFERENCE, 3, { 1, N, N } };
    *ret = &m->source;
    return ST_OK;
}
