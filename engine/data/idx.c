/* Files in the format of MNIST as a source: http://yann.lecun.com/exdb/mnist. A file is a magic of 4 bytes (0, 0, type,
 * number of dimensions), each dimension as 4 bytes big endian, and the numbers, row-major. Images are (n, height,
 * width) or (n, height, width, channels) of bytes, labels (n) of bytes.
 *
 * At open, the length of each file is compared with its header, the labels are read into memory, and all images and
 * labels are digested. The number of classes is the largest training label + 1. Images stay in their file: each sample
 * is read by pread(2), augmented if it is a training sample, and converted to floats. */
#include "base/alloc.h"
#include "engine/data/data_file.h"
#include "engine/data/image_crop.h"
#include "engine/data/image_view.h"
#include "engine/data/mixup.h"
#include "engine/data/resize.h"
#include "engine/data/sampler.h"
#include "engine/data/source_kind.h"

#include "base/sha256.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum { IDX_BYTES = 8, IDX_DIMS = 4, IDX_SIDE = SOURCE_SIDE };

struct idx {
    struct data_file file;
    int n_dims;
    int64_t dim[IDX_DIMS], begin; /* begin: offset of the first number */
};

struct idx_split {
    struct idx images;
    uint8_t *labels; /* (n) */
};

struct idx_source {
    struct source source;
    struct idx_split splits[SOURCE_SPLITS];
    struct image_shape shape;
    struct image_making making;
};

/* Opens and checks a file of dims to max_dims dimensions. */
static status_t idx_open(struct idx *x, const struct roots *roots, const char *path, int dims, int max_dims,
                         struct err *e) {
    uint8_t head[4 + 4 * IDX_DIMS] = { 0 };
    TRY(data_file_open(&x->file, "idx file", roots, path, e));
    if (x->file.bytes < 4)
        return err_set(e, ST_INVALID_ARGUMENT, "the idx file '%s' ends at byte %lld, in its magic", path,
                       (long long)x->file.bytes);
    TRY(data_file_read(&x->file, 0, head, 4, e));
    if (head[0] || head[1] || head[2] != IDX_BYTES || head[3] < dims || head[3] > max_dims)
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
        return err_set(e, ST_INVALID_ARGUMENT, "the idx file '%s' needs more bytes by its header than a file can have",
                       path);
    if (x->file.bytes != needs)
        return err_set(e, ST_INVALID_ARGUMENT, "the idx file '%s' needs %lld bytes by its header and has %lld", path,
                       (long long)needs, (long long)x->file.bytes);
    return ST_OK;
}

static status_t read_labels(struct idx_split *split, const struct roots *roots, const char *path, struct err *e) {
    struct idx labels;
    labels.file.fd = -1;
    status_t st = idx_open(&labels, roots, path, 1, 1, e);
    if (st == ST_OK && labels.dim[0] != split->images.dim[0])
        st = err_set(e, ST_INVALID_ARGUMENT, "the idx file '%s' has %lld labels for %lld images", path,
                     (long long)labels.dim[0], (long long)split->images.dim[0]);
    if (st == ST_OK && !(split->labels = malloc((size_t)labels.dim[0] + 1)))
        st = err_errno(e, "allocate %lld labels", (long long)labels.dim[0]);
    if (st == ST_OK)
        st = data_file_read(&labels.file, labels.begin, split->labels, (size_t)labels.dim[0], e);
    data_file_close(&labels.file);
    return st;
}

static int classes_of(const struct idx_split *split) {
    int classes = 0;
    for (int64_t i = 0; i < split->images.dim[0]; i++)
        classes = split->labels[i] >= classes ? split->labels[i] + 1 : classes;
    return classes;
}

static status_t open_split(struct idx_source *s, enum source_split split, const struct roots *roots, const char *images,
                           const char *labels, struct err *e) {
    struct idx *x = &s->splits[split].images;
    TRY(idx_open(x, roots, images, 3, 4, e));
    const struct image_shape shape = { (int)x->dim[1], (int)x->dim[2], x->n_dims == 4 ? (int)x->dim[3] : 1 };
    if (shape.channels != 1 && shape.channels != 3)
        return err_set(e, ST_INVALID_ARGUMENT, "the idx file '%s' has images of %d channels: 1 and 3 are read", images,
                       shape.channels);
    if (split == SOURCE_VALIDATION && memcmp(&shape, &s->shape, sizeof shape) != 0)
        return err_set(e, ST_INVALID_ARGUMENT, "the idx file '%s' has images of %d x %d, training has %d x %d", images,
                       shape.width, shape.height, s->shape.width, s->shape.height);
    s->shape = shape;
    TRY(read_labels(&s->splits[split], roots, labels, e));
    int classes = classes_of(&s->splits[split]);
    if (split == SOURCE_VALIDATION && classes > s->source.info.classes)
        return err_set(e, ST_INVALID_ARGUMENT, "the idx file '%s' has the label %d, training has none above %d", labels,
                       classes - 1, s->source.info.classes - 1);
    if (split == SOURCE_TRAIN)
        s->source.info.classes = classes;
    s->source.info.samples[split] = x->dim[0];
    return ST_OK;
}

/* The part that the sample shows, scaled to the size of the image. */
static status_t crop(const struct idx_source *s, const uint8_t *pixels, int64_t seed, int64_t sample, uint8_t *to,
                     struct err *e) {
    const int H = s->shape.height, W = s->shape.width;
    const struct image_box part = image_crop_draw(&s->making.augment.resized_crop, seed, sample, H, W);
    struct raster r;
    TRY(raster_allocate(&r, part.height, part.width, s->shape.channels, e));
    const size_t C = (size_t)s->shape.channels, row = (size_t)part.width * C;
    for (size_t y = 0; y < (size_t)part.height; y++)
        memcpy(r.data + y * row, pixels + (((size_t)part.top + y) * (size_t)W + (size_t)part.left) * C, row);
    status_t st = raster_scale(&r, H, W, to, e);
    free(r.data);
    return st;
}

static status_t read_idx(const struct source *source, enum source_split split, int64_t seed, int64_t first, int B,
                         const struct batch *to, struct err *e) {
    const struct idx_source *s = (const struct idx_source *)source;
    const struct idx_split *p = &s->splits[split];
    const size_t n = (size_t)s->shape.height * (size_t)s->shape.width * (size_t)s->shape.channels;
    float *images = to->of[BATCH_IMAGES];
    int32_t *labels = to->of[BATCH_LABELS];
    /* An image, the part of it that a sample shows, and the workspace of image_make. */
    CLEANUP(freep) uint8_t *pixels = malloc(2 * n + image_making_bytes(&s->making));
    if (!pixels)
        return err_errno(e, "allocate images of %zu bytes", 2 * n);
    for (int b = 0; b < B; b++) {
        const bool train = split == SOURCE_TRAIN;
        int64_t i = sampler_index(split, seed, p->images.dim[0], first + b);
        if (labels)
            labels[b] = p->labels[i];
        if (!images)
            continue;
        TRY(data_file_read(&p->images.file, p->images.begin + i * (int64_t)n, pixels, n, e));
        const uint8_t *shown = pixels;
        /* What is drawn depends on the sample's number, not on the image: it differs in each epoch. */
        if (train && image_crop_is_drawn(&s->making.augment)) {
            TRY(crop(s, pixels, seed, first + b, pixels + n, e));
            shown = pixels + n;
        }
        image_make(&s->making, train, seed, first + b, shown, pixels + 2 * n, images + (size_t)b * n);
    }
    return ST_OK;
}

static void close_idx(struct source *source) {
    struct idx_source *s = (struct idx_source *)source;
    for (int split = 0; split < SOURCE_SPLITS; split++) {
        data_file_close(&s->splits[split].images.file);
        free(s->splits[split].labels);
    }
    free(s);
}

/* Digests all bytes of the image files, and all labels. */
static status_t digest(struct idx_source *s, const struct source_options *options, struct err *e) {
    enum { READ_BYTES = 1 << 20 };
    CLEANUP(freep) uint8_t *bytes = alloc_zeroed(READ_BYTES, 1);
    struct sha256 sha256;
    sha256_begin(&sha256);
    status_t st = ST_OK;
    for (int split = 0; split < SOURCE_SPLITS; split++) {
        const struct data_file *f = &s->splits[split].images.file;
        for (int64_t at = 0; at < f->bytes && st == ST_OK; at += READ_BYTES) {
            size_t n = f->bytes - at < READ_BYTES ? (size_t)(f->bytes - at) : READ_BYTES;
            if ((st = data_file_read(f, at, bytes, n, e)) == ST_OK)
                sha256_update(&sha256, bytes, n);
            if (options->progress)
                options->progress(options->ctx);
        }
        if (s->splits[split].labels)
            sha256_update(&sha256, s->splits[split].labels, (size_t)s->splits[split].images.dim[0]);
    }
    uint8_t raw[SHA256_BYTES];
    sha256_final(&sha256, raw);
    sha256_hex(raw, s->source.info.sha256);
    return st;
}

static status_t open_splits(struct idx_source *s, const struct data_config *data, const struct source_options *options,
                            struct err *e) {
    const struct data_idx *config = &data->idx;
    TRY(open_split(s, SOURCE_TRAIN, data->roots, config->train_images, config->train_labels, e));
    if (s->source.info.samples[SOURCE_TRAIN] == 0)
        return err_set(e, ST_INVALID_ARGUMENT, "the idx file '%s' has no images", config->train_images);
    if (config->validation_images && *config->validation_images)
        TRY(open_split(s, SOURCE_VALIDATION, data->roots, config->validation_images, config->validation_labels, e));
    TRY(image_making_init(&s->making, &s->shape, &config->augment, &config->normalize, e));
    return digest(s, options, e);
}

static status_t open_source(const struct data_config *config, const struct source_options *options, struct source **ret,
                            struct err *e) {
    struct idx_source *s = alloc_zeroed(1, sizeof *s);
    s->source.read = read_idx;
    s->source.close = close_idx;
    for (int split = 0; split < SOURCE_SPLITS; split++)
        s->splits[split].images.file.fd = -1;
    status_t st = open_splits(s, config, options, e);
    if (st != ST_OK) {
        close_idx(&s->source);
        return st;
    }
    struct source_info *info = &s->source.info;
    info->memory_bytes = (size_t)(info->samples[SOURCE_TRAIN] + info->samples[SOURCE_VALIDATION]); /* labels */
    info->inputs[info->n_inputs++] = (struct source_input){ BATCH_IMAGES,
                                                            3,
                                                            { s->shape.channels, s->shape.height, s->shape.width } };
    info->inputs[info->n_inputs++] = (struct source_input){ .input = BATCH_LABELS };
    if ((st = mixup_open(&s->source, config->idx.augment.mixup, e)) != ST_OK) {
        close_idx(&s->source);
        return st;
    }
    *ret = &s->source;
    return ST_OK;
}

static const struct member MEMBERS[] = {
    MEMBER_PATH(struct data_idx, train_images, MEMBER_FILE),
    MEMBER_PATH(struct data_idx, train_labels, MEMBER_FILE),
    MEMBER_PATH(struct data_idx, validation_images, MEMBER_FILE),
    MEMBER_PATH(struct data_idx, validation_labels, MEMBER_FILE),
    IMAGE_MEMBERS(struct data_idx),
};

const struct data_kind data_idx = {
    .name = "idx", .members = MEMBERS, .n_members = (int)(sizeof MEMBERS / sizeof *MEMBERS), .open = open_source
};
