/* Frames: a length of 4 bytes (little-endian), then a packed message.
 *
 * The reader appends input to a buffer, and returns each message when all of its bytes have arrived. `taken` counts the
 * bytes that were returned already; they are removed before the next read, so that a returned packed message stays
 * valid until then. A length above the limit is refused before memory is allocated for it. An end of the stream is an
 * error if a part of a frame is left. */
#include "api/codec/frame.h"

#include "base/file.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The most bytes of one read(2): the size of a Linux pipe's buffer. */
enum { READ_CHUNK_BYTES = 64 << 10 };

/* The length is written byte by byte, so that its order does not depend on the processor. */
static void put_length(uint8_t *at, size_t n) {
    for (int i = 0; i < FRAME_HEADER_BYTES; i++)
        at[i] = (uint8_t)(n >> (8 * i));
}

static size_t get_length(const uint8_t *at) {
    return (size_t)at[0] | (size_t)at[1] << 8 | (size_t)at[2] << 16 | (size_t)at[3] << 24;
}

status_t frame_pack(const ProtobufCMessage *msg, struct bytes *out, struct err *e) {
    size_t n = protobuf_c_message_get_packed_size(msg);
    if (n > UINT32_MAX)
        return err_set(e, ST_RESOURCE_EXHAUSTED, "a %s of %zu bytes does not fit a frame", msg->descriptor->name, n);
    TRY(bytes_reserve(out, FRAME_HEADER_BYTES + n, e));
    uint8_t *at = (uint8_t *)out->data + out->len;
    put_length(at, n);
    protobuf_c_message_pack(msg, at + FRAME_HEADER_BYTES);
    out->len += FRAME_HEADER_BYTES + n;
    out->data[out->len] = '\0';
    return ST_OK;
}

status_t frame_write(int fd, const ProtobufCMessage *msg, struct err *e) {
    struct bytes frame;
    bytes_init(&frame, SIZE_MAX / 4); /* no limit of its own: the message is in memory already */
    status_t st = frame_pack(msg, &frame, e);
    if (st == ST_OK)
        st = fd_write_all(fd, frame.data, frame.len, e);
    bytes_done(&frame);
    return st;
}

void frame_reader_init(struct frame_reader *r, size_t limit) {
    *r = (struct frame_reader){ .limit = limit };
    /* An incomplete frame has less than limit + header bytes, and one more chunk may follow. */
    bytes_init(&r->buf, limit + FRAME_HEADER_BYTES + READ_CHUNK_BYTES);
}

void frame_reader_done(struct frame_reader *r) {
    bytes_done(&r->buf);
    r->taken = 0;
}

void frame_reader_wipe(struct frame_reader *r) {
    if (r->taken > 0)
        explicit_bzero(r->buf.data, r->taken);
}

/* Moves the bytes that are not taken to the front, so that the buffer never grows beyond one frame and one chunk. */
static void drop_taken(struct frame_reader *r) {
    if (r->taken == 0)
        return;
    r->buf.len -= r->taken;
    memmove(r->buf.data, r->buf.data + r->taken, r->buf.len);
    r->taken = 0;
}

status_t frame_reader_feed(struct frame_reader *r, const void *data, size_t n, struct err *e) {
    drop_taken(r);
    return bytes_append(&r->buf, data, n, e);
}

status_t frame_reader_fill(struct frame_reader *r, int fd, bool *ret_ended, struct err *e) {
    drop_taken(r);
    size_t capacity = r->buf.limit - r->buf.len;
    size_t want = capacity < READ_CHUNK_BYTES ? capacity : READ_CHUNK_BYTES;
    if (want == 0)
        return err_set(e, ST_FAILED_PRECONDITION, "whole messages wait in the reader: take them before reading more");
    TRY(bytes_reserve(&r->buf, want, e));
    ssize_t got;
    do {
        got = read(fd, r->buf.data + r->buf.len, want);
    } while (got < 0 && errno == EINTR);
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        *ret_ended = false;
        return ST_OK;
    }
    if (got < 0)
        return err_errno(e, "reading a message");
    r->buf.len += (size_t)got;
    if (got == 0 && r->buf.len > 0) {
        const uint8_t *packed = NULL;
        size_t n = 0;
        TRY(frame_reader_next_packed(r, &packed, &n, e));
        if (!packed)
            return err_set(e, ST_DATA_LOSS, "the stream ends inside a message: %zu bytes are left over", r->buf.len);
        r->taken = 0; /* the frame was only checked, not returned */
    }
    *ret_ended = got == 0;
    return ST_OK;
}

status_t frame_reader_next_packed(struct frame_reader *r, const uint8_t **ret, size_t *ret_n, struct err *e) {
    size_t left = r->buf.len - r->taken;
    *ret = NULL;
    *ret_n = 0;
    if (left < FRAME_HEADER_BYTES)
        return ST_OK;
    const uint8_t *at = (const uint8_t *)r->buf.data + r->taken;
    size_t n = get_length(at);
    if (n > r->limit)
        return err_set(e, ST_DATA_LOSS, "a message claims %zu bytes; at most %zu are read", n, r->limit);
    if (left - FRAME_HEADER_BYTES < n)
        return ST_OK;
    *ret = at + FRAME_HEADER_BYTES;
    *ret_n = n;
    r->taken += FRAME_HEADER_BYTES + n;
    return ST_OK;
}

status_t frame_reader_next(struct frame_reader *r, const ProtobufCMessageDescriptor *desc, ProtobufCMessage **ret,
                           struct err *e) {
    const uint8_t *packed = NULL;
    size_t n = 0;
    TRY(frame_reader_next_packed(r, &packed, &n, e));
    if (!packed) {
        *ret = NULL;
        return ST_OK;
    }
    ProtobufCMessage *msg = protobuf_c_message_unpack(desc, NULL, n, packed);
    if (!msg)
        return err_set(e, ST_DATA_LOSS, "%zu bytes are no %s", n, desc->name);
    *ret = msg;
    return ST_OK;
}

status_t frame_reader_wait(struct frame_reader *r, int fd, const ProtobufCMessageDescriptor *desc,
                           ProtobufCMessage **ret, struct err *e) {
    for (bool ended = false;;) {
        ProtobufCMessage *msg = NULL;
        TRY(frame_reader_next(r, desc, &msg, e));
        if (msg || ended) {
            *ret = msg;
            return ST_OK;
        }
        struct pollfd p = { .fd = fd, .events = POLLIN };
        if (poll(&p, 1, -1) < 0 && errno != EINTR)
            return err_errno(e, "waiting for a message");
        TRY(frame_reader_fill(r, fd, &ended, e));
    }
}
