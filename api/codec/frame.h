/* Messages on a byte stream between an agent and its workers, over pipes.
 *
 *   frame = u32 little-endian length of the packed message, then the message.
 *
 * A pipe may split and join writes, so that reading is incremental: fill the reader with the input that has arrived,
 * then take whole messages until none is left.
 *
 *     frame_reader_init(&r, LIMIT_RECORD_BYTES);
 *     for (;;) {
 *         TRY(frame_reader_fill(&r, fd, &ended, e));            // after poll reported input, or blocking
 *         while (frame_reader_next(&r, &trainyard__v1__worker_record__descriptor, &msg, e) == ST_OK && msg)
 *             ... use msg; protobuf_c_message_free_unpacked(msg, NULL) ...
 *     }
 *
 * Limits: a reader refuses a length above its limit before it allocates memory for it, so that a broken peer costs at
 * most limit + 4 bytes plus one decoded message.
 *
 * Threads: not thread-safe; one thread uses a reader. Writers of one descriptor need a lock of their own. */
#ifndef API_CODEC_FRAME_H
#define API_CODEC_FRAME_H

#include "base/bytes.h"
#include "base/cleanup.h"
#include "base/status.h"

#include <protobuf-c/protobuf-c.h>
#include <stdbool.h>

/* The bytes of the length before each message. */
enum { FRAME_HEADER_BYTES = 4 };

/* Appends the whole frame to out. RESOURCE_EXHAUSTED past the limit of out, which is then unchanged. For writers that
 * queue, or that must not block. */
MUST_CHECK status_t frame_pack(const ProtobufCMessage *msg, struct bytes *out, struct err *e);

/* Writes the whole frame to fd, across short writes and EINTR. Blocks while the pipe is full. UNAVAILABLE if the reader
 * is gone (the caller ignores SIGPIPE). */
MUST_CHECK status_t frame_write(int fd, const ProtobufCMessage *msg, struct err *e);

struct frame_reader {
    struct bytes buf; /* bytes that have arrived */
    size_t taken;     /* bytes of buf that were already returned */
    size_t limit;     /* bytes of one message, at most */
};

/* limit: the longest packed message, in bytes. */
void frame_reader_init(struct frame_reader *r, size_t limit);
void frame_reader_done(struct frame_reader *r);

/* Calls read(2) once. *ret_ended becomes true at the end of the stream. If a non-blocking descriptor has nothing to
 * read, returns ST_OK and adds nothing. DATA_LOSS if the stream ends inside a frame: the peer died while it wrote. */
MUST_CHECK status_t frame_reader_fill(struct frame_reader *r, int fd, bool *ret_ended, struct err *e);

/* Adds bytes from another source, such as a spool file. The same limit applies. */
MUST_CHECK status_t frame_reader_feed(struct frame_reader *r, const void *data, size_t n, struct err *e);

/* Returns the next whole message, for protobuf_c_message_free_unpacked(msg, NULL); NULL if none is complete. DATA_LOSS
 * for a length above the limit, or for bytes that are not such a message: the stream cannot be used any further. */
MUST_CHECK status_t frame_reader_next(struct frame_reader *r, const ProtobufCMessageDescriptor *desc,
                                      ProtobufCMessage **ret, struct err *e);

/* Like frame_reader_next, without decoding: returns the packed message, valid until the next fill or feed; NULL if none
 * is complete. For relays that forward records without reading them. */
MUST_CHECK status_t frame_reader_next_packed(struct frame_reader *r, const uint8_t **ret, size_t *ret_n, struct err *e);

/* Blocks until a whole message has arrived or the stream has ended (*ret is NULL then). */
MUST_CHECK status_t frame_reader_wait(struct frame_reader *r, int fd, const ProtobufCMessageDescriptor *desc,
                                      ProtobufCMessage **ret, struct err *e);

/* Overwrites the bytes of messages that were already returned: they had a secret. */
void frame_reader_wipe(struct frame_reader *r);

#endif
