/* Messages on a byte stream between processes of one version: agent and worker over pipes.
 *
 *   frame = u32 little-endian length of the packed message, then the message.
 *
 * A pipe cuts and joins writes as it likes, so reading is incremental: fill the reader with what has arrived, then take
 * whole messages out until none is left.
 *
 *     frame_reader_init(&r, LIMIT_RECORD_BYTES);
 *     for (;;) {
 *         TRY(frame_reader_fill(&r, fd, &ended, e));            // after poll said readable, or blocking
 *         while (frame_reader_next(&r, &trainyard__v1__worker_record__descriptor, &msg, e) == ST_OK && msg)
 *             ... use msg; protobuf_c_message_free_unpacked(msg, NULL) ...
 *     }
 *
 * Limits: a reader refuses a length above its limit before it allocates for it, so a broken peer costs at most
 * limit + 4 bytes plus one decoded message. Not thread-safe: one reader, one thread. Writers of one descriptor need a
 * lock of their own. */
#ifndef API_CODEC_FRAME_H
#define API_CODEC_FRAME_H

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/status.h"

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>

/* The bytes of the length before each message. */
enum { FRAME_HEADER_BYTES = 4 };

/* Appends the whole frame to out; RESOURCE_EXHAUSTED past out's limit, and out is then as it was. For writers that
 * queue or that must not block. */
MUST_CHECK status_t frame_pack(const ProtobufCMessage *msg, struct bytes *out, struct err *e);

/* The whole frame to fd, over short writes and EINTR; blocks while the pipe is full. UNAVAILABLE when the reader is
 * gone (the caller ignores SIGPIPE). */
MUST_CHECK status_t frame_write(int fd, const ProtobufCMessage *msg, struct err *e);

struct frame_reader {
    struct bytes buf; /* what has arrived */
    size_t taken;     /* of buf, already handed out */
    size_t limit;     /* of one message */
};

/* limit: the longest packed message, in bytes. */
void frame_reader_init(struct frame_reader *r, size_t limit);
void frame_reader_done(struct frame_reader *r);

/* One read(2). ret_ended becomes true at the end of the stream. A non-blocking descriptor with nothing to read is ST_OK
 * and adds nothing. DATA_LOSS when the stream ends inside a frame: the peer died while it wrote. */
MUST_CHECK status_t frame_reader_fill(struct frame_reader *r, int fd, bool *ret_ended, struct err *e);

/* For bytes that came another way (a spool file). The same limit holds. */
MUST_CHECK status_t frame_reader_feed(struct frame_reader *r, const void *data, size_t n, struct err *e);

/* The next whole message, for protobuf_c_message_free_unpacked(msg, NULL); NULL when none is complete. DATA_LOSS for a
 * length above the limit or bytes that are no such message: the stream cannot be used any further. */
MUST_CHECK status_t frame_reader_next(struct frame_reader *r, const ProtobufCMessageDescriptor *desc,
                                      ProtobufCMessage **ret, struct err *e);

/* As frame_reader_next, without decoding: the packed message, valid until the next fill or feed; NULL when none is
 * complete. For relays that pass records on unread. */
MUST_CHECK status_t frame_reader_next_packed(struct frame_reader *r, const uint8_t **ret, size_t *ret_n, struct err *e);

/* Blocks until a whole message is there or the stream has ended (ret NULL then). */
MUST_CHECK status_t frame_reader_wait(struct frame_reader *r, int fd, const ProtobufCMessageDescriptor *desc,
                                      ProtobufCMessage **ret, struct err *e);

#endif
