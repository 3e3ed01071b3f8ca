/* The tensors of a folder in which transformers has saved a model: model.safetensors, or the files that
 * model.safetensors.index.json lists. Validates everything. Private to this folder and its fuzz target. */
#ifndef ENGINE_PRETRAINED_WEIGHTS_FOLDER_H
#define ENGINE_PRETRAINED_WEIGHTS_FOLDER_H

#include "base/cleanup.h"
#include "base/status.h"

#include <stdint.h>

enum { WEIGHTS_FOLDER_DIMS = 8, WEIGHTS_FOLDER_FILES = 1024, WEIGHTS_FOLDER_FILE_NAME = 256 };

struct weights_folder_tensor {
    char *name;
    char dtype[8]; /* "F32", "BF16", "F16"; weights_folder_read refuses others */
    int n_dims;
    int64_t shape[WEIGHTS_FOLDER_DIMS];
    int file;
    int64_t offset; /* bytes in the file */
};

struct weights_folder;
struct roots;

/* NOT_FOUND: no weights in it; DATA_LOSS names the file; and as roots_open. roots must live until
 * weights_folder_close. */
MUST_CHECK status_t weights_folder_open(const struct roots *roots, const char *directory, struct weights_folder **ret,
                                        struct err *e);
struct weights_folder *weights_folder_close(struct weights_folder *f);
CLEANUP_DEFINE(struct weights_folder *, weights_folder_close)

/* The tensor of exactly this name, or NULL. */
const struct weights_folder_tensor *weights_folder_find(const struct weights_folder *f, const char *name);
int64_t weights_folder_tensor_elements(const struct weights_folder_tensor *t);

/* data (count) = elements [first, first + count), which must exist, converted to fp32. */
MUST_CHECK status_t weights_folder_read(const struct weights_folder *f, const struct weights_folder_tensor *t,
                                        int64_t first, int64_t count, float *data, struct err *e);

/* Parses model.safetensors.index.json: the files that its weight_map names, each once. The caller frees `ret` (n) and
 * its names. */
MUST_CHECK status_t weights_folder_index_parse(const char *text, size_t n, char ***ret, int *ret_n, struct err *e);

#endif
