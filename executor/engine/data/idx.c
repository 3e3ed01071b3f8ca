/* Files in the format of MNIST as a source: http://yann.lecun.com/exdb/mnist. A file is a magic of 4 bytes (0, 0, type,
 * number of dimensions), each dimension as 4 bytes big endian, and the numbers, row-major. Images are (n, height,
 * width) or (n, height, width, channels) of bytes, labels (n) of bytes. Images stay in their file and are read by
 * pread(2). */
#include "executor/engine/data/data_file.h"
#include "executor/engine/data/picture.h"
#include "executor/engine/data/sampler.h"
#include "executor/engine/data/source_kind.h"

#include "base/sha256.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { IDX_BYTES = 8, IDX_DIMS = 4, IDX_SIDE = SOURCE_SIDE };

struct idx {
    struct data_file file;
    int n_dims;
    int64_t dim[IDX_DIMS], begin; /* begin: of the numbers */
};

struct idx_part {
    struct idx images;
    uint8_t *labels; /* (n) */
};

struct idx_source {
    struct source source;
    struct idx_part parts[SOURCE_PARTS];
    struct picture_shape shape;
    struct data_augmentation augment;
};

/* Opens and checks a file of dims dimensions, or one more. */
static status_t idx_open(struct idx *x, const char *path, int dims, int most, struct err *e) {
    uint8_t head[4 + 4 * IDX_DIMS] = { 0 };
    TRY(data_file_open(&x->file, "idx file", path, e));
    if (x->file.bytes < 4)
        return err_set(e, ST_INVALID_ARGUMENT, "the idx file '%s' ends at byte %lld, in its magic", path,
                       (long long)x->file.bytes);
    TRY(data_file_read(&x->file, 0, head, 4, e));
    if (head[0] || head[1] || head[2] != IDX_BYTES || head[3] < dims || head[3] > most)
        return err_set(e, ST_INVALID_ARGUMENT,
                       "the idx file '%s' has the magic %02x%02x%02x%02x at byte 0; bytes in %d dimensions have "
                       "0000%02x%02x",
                       path, head[0], head[1], head[2], head[3], dims, IDX_BYTES, dims);
    x->n_dims = head[3];
    x->begin = 4 + 4 * x->n_dims;
    if (x->file.bytes < x->begin)
        return err_set(e, ST_INVALID_ARGUMENT, "the idx file '%s' ends at byte %lld, in its dimensions", path,
                       (long long)x->file.bytes);
    TRY(data_file_read(&x->file, 4, head + 4, (size_t)x->n_dims * 4, e));
    int64_t each = 1;
    for (int d = 0; d < x->n_dims; d++) {
        const uint8_t *p = head + 4 + 4 * d;
        x->dim[d] = (int64_t)p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3];
        if (d && (x->dim[d] < 1 || x->dim[d] > IDX_SIDE))
            return err_set(e, ST_INVALID_ARGUMENT, "the idx file '%s' has the dimension %lld at byte %d", path,
                           (long long)x->dim[d], 4 + 4 * d);
        each *= d ? x->dim[d] : 1;
    }
    int64_t needs;
    if (__builtin_mul_overflow(x->dim[0], each, &needs) || __builtin_add_overflow(needs, x->begin, &needs))
        return err_set(e, ST_INVALID_ARGUMENT, "the idx file '%s' says that it needs more bytes than files can have",
                       path);
    if (x->file.bytes != needs)
        return err_set(e, ST_INVALID_ARGUMENT, "the idx file '%s' says that it needs %lld bytes, and has %lld", path,
                       (long long)needs, (long long)x->file.bytes);
    return ST_OK;
}

static status_t read_labels(struct idx_part *part, const char *path, struct err *e) {
    struct idx labels;
    labels.file.fd = -1;
    status_t st = idx_open(&labels, path, 1, 1, e);
    if (st == ST_OK && labels.dim[0] != part->images.dim[0])
        st = err_set(e, ST_INVALID_ARGUMENT, "the idx file '%s' has %lld labels for %lld images", path,
                     (long long)labels.dim[0], (long long)part->images.dim[0]);
    if (st == ST_OK && !(part->labels = malloc((size_t)labels.dim[0] + 1)))
        st = err_errno(e, "allocate %lld labels", (long long)labels.dim[0]);
    if (st == ST_OK)
        st = data_file_read(&labels.file, labels.begin, part->labels, (size_t)labels.dim[0], e);
    data_file_close(&labels.file);
    return st;
}

static int classes_of(const struct idx_part *part) {
    int classes = 0;
    for (int64_t i = 0; i < part->images.dim[0]; i++)
        classes = part->labels[i] >= classes ? part->labels[i] + 1 : classes;
    return classes;
}

static status_t open_part(struct idx_source *s, enum source_part part, const char *images, const char *labels,
                          struct err *e) {
    struct idx *x = &s->parts[part].images;
    TRY(idx_open(x, images, 3, 4, e));
    const struct picture_shape shape = { (int)x->dim[1], (int)x->dim[2], x->n_dims == 4 ? (int)x->dim[3] : 1 };
    if (shape.channels != 1 && shape.channels != 3)
        return err_set(e, ST_INVALID_ARGUMENT, "the idx file '%s' has images of %d channels: 1 and 3 are read", images,
                       shape.channels);
    if (part == SOURCE_VALIDATION && memcmp(&shape, &s->shape, sizeof shape) != 0)
        return err_set(e, ST_INVALID_ARGUMENT, "the idx file '%s' has images of %d x %d, training has %d x %d", images,
                       shape.width, shape.height, s->shape.width, s->shape.height);
    s->shape = shape;
    TRY(read_labels(&s->parts[part], labels, e));
    int classes = classes_of(&s->parts[part]);
    if (part == SOURCE_VALIDATION && classes > s->source.info.classes)
        return err_set(e, ST_INVALID_ARGUMENT, "the idx file '%s' has the label %d, training has none above %d", labels,
                       classes - 1, s->source.info.classes - 1);
    if (part == SOURCE_TRAIN)
        s->source.info.classes = classes;
    s->source.info.samples[part] = x->dim[0];
    return ST_OK;
}

static status_t read_idx(const struct source *source, enum source_part part, int64_t seed, int64_t first, int B,
                         const struct batch *to, struct err *e) {
    const struct idx_source *s = (const struct idx_source *)source;
    const struct idx_part *p = &s->parts[part];
    const size_t n = (size_t)s->shape.height * (size_t)s->shape.width * (size_t)s->shape.channels;
    float *images = to->of[BATCH_IMAGES];
    int32_t *labels = to->of[BATCH_LABELS];
    CLEANUP(freep) uint8_t *pixels = malloc(n);
    if (!pixels)
        return err_errno(e, "allocate an image of %zu bytes", n);
    for (int b = 0; b < B; b++) {
        const bool train = part == SOURCE_TRAIN;
        int64_t i = sampler_start(seed, train ? SAMPLER_TRAIN : SAMPLER_VALIDATION, p->images.dim[0], first + b);
        if (labels)
            labels[b] = p->labels[i];
        if (!images)
            continue;
        struct picture_view view = { 0 };
        if (train)
            view = picture_draw(&s->augment, seed, first + b);
        TRY(data_file_read(&p->images.file, p->images.begin + i * (int64_t)n, pixels, n, e));
        picture_numbers(&s->shape, pixels, view, PICTURE_SCALE, PICTURE_SHIFT, images + (size_t)b * n);
    }
    return ST_OK;
}

static void close_idx(struct source *source) {
    struct idx_source *s = (struct idx_source *)source;
    for (int part = 0; part < SOURCE_PARTS; part++) {
        data_file_close(&s->parts[part].images.file);
        free(s->parts[part].labels);
    }
    free(s);
}

/* All bytes of images and labels. */
static status_t digest(struct idx_source *s, const struct source_options *options, struct err *e) {
    enum { PART = 1 << 20 };
    CLEANUP(freep) uint8_t *bytes = malloc(PART);
    if (!bytes)
        return err_errno(e, "allocate %d bytes", PART);
    struct sha256 sha256;
    sha256_begin(&sha256);
    status_t st = ST_OK;
    for (int part = 0; part < SOURCE_PARTS; part++) {
        const struct data_file *f = &s->parts[part].images.file;
        for (int64_t at = 0; at < f->bytes && st == ST_OK; at += PART) {
            size_t n = f->bytes - at < PART ? (size_t)(f->bytes - at) : PART;
            if ((st = data_file_read(f, at, bytes, n, e)) == ST_OK)
                sha256_update(&sha256, bytes, n);
            if (options->progress)
                options->progress(options->ctx);
        }
        if (s->parts[part].labels)
            sha256_update(&sha256, s->parts[part].labels, (size_t)s->parts[part].images.dim[0]);
    }
    uint8_t raw[SHA256_BYTES];
    sha256_final(&sha256, raw);
    sha256_hex(raw, s->source.info.sha256);
    return st;
}

static status_t open_parts(struct idx_source *s, const struct data_idx *config, const struct source_options *options,
                           struct err *e) {
    if (config->augment.crop_padding < 0 || config->augment.crop_padding > IDX_SIDE)
        return err_set(e, ST_INVALID_ARGUMENT, "a crop padding of %d is not within %d", config->augment.crop_padding,
                       IDX_SIDE);
    TRY(open_part(s, SOURCE_TRAIN, config->train_images, config->train_labels, e));
    if (s->source.info.samples[SOURCE_TRAIN] == 0)
        return err_set(e, ST_INVALID_ARGUMENT, "the idx file '%s' holds no image", config->train_images);
    if (config->validation_images && *config->validation_images)
        TRY(open_part(s, SOURCE_VALIDATION, config->validation_images, config->validation_labels, e));
    return digest(s, options, e);
}

status_t source_open_idx(const struct data_config *config, const struct source_options *options, struct source **ret,
                         struct err *e) {
    struct idx_source *s = calloc(1, sizeof *s);
    if (!s)
        return err_errno(e, "allocate a source");
    s->source.read = read_idx;
    s->source.close = close_idx;
    s->augment = config->idx.augment;
    for (int part = 0; part < SOURCE_PARTS; part++)
        s->parts[part].images.file.fd = -1;
    status_t st = open_parts(s, &config->idx, options, e);
    if (st != ST_OK) {
        close_idx(&s->source);
        return st;
    }
    struct source_info *info = &s->source.info;
    info->inputs[info->n_inputs++] = (struct source_input){ BATCH_IMAGES,
                                                            3,
                                                            { s->shape.channels, s->shape.height, s->shape.width } };
    info->inputs[info->n_inputs++] = (struct source_input){ .input = BATCH_LABELS };
    *ret = &s->source;
    return ST_OK;
}
