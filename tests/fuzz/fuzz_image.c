/* PNG and JPEG files: any bytes are a picture of the size that is said, or a sentence. A PNG's checksums are put right
 * first, so that what is in its chunks is reached. */
#include "engine/data/decode.h"
#include "engine/data/resize.h"

#include <stdlib.h>
#include <string.h>
#include <zlib.h>

/* The middle has the size that is asked for, or is a sentence. */
static void decode_part(const uint8_t *data, size_t n, int channels, const struct raster *whole) {
    const struct image_box part = { .top = whole->height / 3,
                                    .left = whole->width / 3,
                                    .height = (whole->height + 2) / 3,
                                    .width = (whole->width + 2) / 3 };
    struct raster r = { 0 };
    struct err e;
    if (image_decode(data, n, channels, &part, &r, &e) != ST_OK)
        return;
    if (r.height != part.height || r.width != part.width)
        abort();
    free(r.data);
}

static void decode(const uint8_t *data, size_t n, int channels) {
    struct raster r = { 0 };
    struct err e;
    uint8_t small[8 * 8 * 3];
    int height, width;
    if (image_decode(data, n, channels, NULL, &r, &e) != ST_OK)
        return;
    if (image_size(data, n, &height, &width, &e) != ST_OK || height != r.height || width != r.width)
        abort();
    if (r.channels != channels || r.height < 1 || r.width < 1 || r.height > IMAGE_SIDE || r.width > IMAGE_SIDE)
        abort();
    unsigned sum = 0;
    for (size_t i = 0; i < (size_t)r.height * (size_t)r.width * (size_t)channels; i++)
        sum += r.data[i];
    if (sum == 1) /* every byte is there to be read */
        small[0] = 0;
    if (r.height < 512 && r.width < 512 && raster_fit(&r, 9, 8, small, &e) != ST_OK)
        abort();
    decode_part(data, n, channels, &r);
    free(r.data);
}

static void put_checksums(uint8_t *data, size_t n) {
    for (size_t at = 8; at + 12 <= n;) {
        uint32_t length = (uint32_t)data[at] << 24 | data[at + 1] << 16 | data[at + 2] << 8 | data[at + 3];
        if (length > n - at - 12)
            return;
        uint32_t sum = (uint32_t)crc32(0, data + at + 4, length + 4);
        for (int i = 0; i < 4; i++)
            data[at + 8 + length + (size_t)i] = (uint8_t)(sum >> (24 - 8 * i));
        at += 12 + (size_t)length;
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n) {
    uint8_t *copy = malloc(n + 1);
    if (!copy)
        abort();
    if (n)
        memcpy(copy, data, n);
    decode(copy, n, 3);
    put_checksums(copy, n);
    decode(copy, n, 3);
    decode(copy, n, 1);
    free(copy);
    return 0;
}
