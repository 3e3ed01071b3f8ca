/* The tensors of a folder as transformers saves models: model.safetensors, or the parts that
 * model.safetensors.index.json lists. Trusts nothing. Private to this folder and its fuzz target. */
#ifndef EXECUTOR_ENGINE_PRETRAINED_FOLDER_H
#define EXECUTOR_ENGINE_PRETRAINED_FOLDER_H

#include "base/cleanup.h"
#include "base/status.h"

#include <stdint.h>

enum { FOLDER_DIMS = 8, FOLDER_FILES = 1024, FOLDER_FILE_NAME = 256 };

struct folder_tensor {
    char *name;
    char dtype[8]; /* "F32", "BF16", "F16", or one that folder_read refuses */
    int n_dims;
    int64_t shape[FOLDER_DIMS];
    int file;
    int64_t offset; /* bytes in the file */
};

struct folder;

/* NOT_FOUND: no weights in it; DATA_LOSS names the file. */
MUST_CHECK status_t folder_open(const char *directory, struct folder **ret, struct err *e);
struct folder *folder_close(struct folder *f);
CLEANUP_DEFINE(struct folder *, folder_close)

/* The tensor of exactly this name, or NULL. */
const struct folder_tensor *folder_find(const struct folder *f, const char *name);
int64_t folder_tensor_elements(const struct folder_tensor *t);

/* data (count) = elements [first, first + count) of it, which are in it, widened. */
MUST_CHECK status_t folder_read(const struct folder *f, const struct folder_tensor *t, int64_t first, int64_t count,
                                float *data, struct err *e);

/* model.safetensors.index.json: the files that its weight_map names, each once; free `ret` (n) and its names. */
MUST_CHECK status_t folder_index_parse(const char *text, size_t n, char ***ret, int *ret_n, struct err *e);

#endif
