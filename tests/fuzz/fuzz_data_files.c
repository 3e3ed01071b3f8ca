/* Token files and idx files: any bytes open, or are a sentence; what opens can be read to its last sample, or says why
 * not. The first byte says as what the others are read. */
#include "engine/data/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static int file_of(const uint8_t *data, size_t n, char path[32]) {
    int fd = memfd_create("data", MFD_CLOEXEC);
    if (fd < 0 || write(fd, data, n) != (ssize_t)n)
        abort();
    snprintf(path, 32, "/proc/self/fd/%d", fd);
    return fd;
}

static void read_all(const struct data_config *config) {
    struct source *s = NULL;
    struct err e;
    if (source_open(config, &(struct source_options){ .context = 3, .vocabulary = 1000 }, &s, &e) != ST_OK)
        return;
    const struct source_info *info = source_info(s);
    struct batch to = { 0 };
    int64_t most = 0;
    for (int i = 0; i < info->n_inputs; i++) {
        int64_t n = source_elements(s, info->inputs[i].input);
        most = n > most ? n : most;
    }
    for (int i = 0; most < 1 << 20 && i < info->n_inputs; i++)
        to.of[info->inputs[i].input] = malloc((size_t)source_elements(s, info->inputs[i].input) * sizeof(float));
    for (int64_t i = 0; i < info->samples[SOURCE_TRAIN] && i < 64; i++)
        if (source_read(s, SOURCE_TRAIN, 1, i, 1, &to, &e) != ST_OK)
            break;
    for (int i = 0; i < BATCH_INPUTS; i++)
        free(to.of[i]);
    source_close(s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    if (n < 3)
        return 0;
    char first[32], second[32];
    /* The second byte splits the others in two files. */
    size_t split = 2 + (size_t)data[1] * (n - 2) / 255;
    int a = file_of(data + 2, split - 2, first), b = file_of(data + split, n - split, second);
    const char *train[] = { first, second };
    struct data_config config = { .kind = &data_tokens };
    if (data[0] % 2) {
        config.kind = &data_idx;
        config.idx.train_images = first;
        config.idx.train_labels = second;
        config.idx.augment.crop_padding = data[0] % 3;
    } else {
        config.tokens.train = train;
        config.tokens.n_train = 2;
        config.tokens.token_bytes = data[0] & 2 ? 4 : 2;
    }
    read_all(&config);
    close(a);
    close(b);
    return 0;
}
