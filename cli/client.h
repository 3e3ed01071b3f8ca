/* The connection to the controller, as every command uses it: found, dialled, called, and its answer printed. */
#ifndef CLI_CLIENT_H
#define CLI_CLIENT_H

#include "api/rpc/client.h"
#include "cli/command.h"

struct client;

/* --controller, else TRAINYARD_CONTROLLER, else what ./.trainyard/address says, else 127.0.0.1:7700. Identity from
 * TRAINYARD_TOKEN or TRAINYARD_TOKEN_FILE, TRAINYARD_CA, TRAINYARD_CERT and TRAINYARD_KEY. Nothing is dialled yet; once
 * for a run. */
MUST_CHECK status_t client_open(struct cli *c, struct err *e);
struct client *client_close(struct client *client); /* NULL is fine; returns NULL */

/* One question, with the default deadline; asked again for a few seconds while the controller is away, and for a minute
 * while it answers that its database is. Free the reply with protobuf_c_message_free_unpacked(reply, NULL). */
MUST_CHECK status_t client_call(struct cli *c, const ProtobufCServiceDescriptor *service, const char *method,
                                const ProtobufCMessage *request, ProtobufCMessage **ret, struct err *e);

/* As client_call for a mutation that carries a request_id: tried for longer, since the same id is carried out once. */
MUST_CHECK status_t client_call_again(struct cli *c, const ProtobufCServiceDescriptor *service, const char *method,
                                      const ProtobufCMessage *request, ProtobufCMessage **ret, struct err *e);

/* The same for a look at what has begun and is waited for (pause --wait): an absence of half an hour is no failure, and
 * a line on stderr tells it. client_list_waiting is client_list's. */
MUST_CHECK status_t client_call_waiting(struct cli *c, const ProtobufCServiceDescriptor *service, const char *method,
                                        const ProtobufCMessage *request, ProtobufCMessage **ret, struct err *e);

/* A List call to its last page, or to `limit` elements (CLIENT_ALL: all): the pages joined into one reply. The request
 * has page_size and page_token, which are set here; the reply has one repeated field and next_page_token, which is not
 * empty where the limit has left elements out. */
#define CLIENT_ALL INT64_MAX
MUST_CHECK status_t client_list(struct cli *c, const ProtobufCServiceDescriptor *service, const char *method,
                                ProtobufCMessage *request, int64_t limit, ProtobufCMessage **ret, struct err *e);
MUST_CHECK status_t client_list_waiting(struct cli *c, const ProtobufCServiceDescriptor *service, const char *method,
                                        ProtobufCMessage *request, int64_t limit, ProtobufCMessage **ret,
                                        struct err *e);
/* Moves the elements of page's repeated field behind those of `all`, a message of the same type. */
MUST_CHECK status_t client_join(ProtobufCMessage *all, ProtobufCMessage *page, struct err *e);

MUST_CHECK status_t client_stream(struct cli *c, const ProtobufCServiceDescriptor *service, const char *method,
                                  const ProtobufCMessage *request, struct rpc_stream **ret, struct err *e);

/* Whether a call that has ended with st is worth making again: the controller is away and has been waited for since
 * begun_ms, for less than patience_ms; or for less than a minute where it gave a reason, for then only its database is
 * away. */
bool client_waits(status_t st, const char *reason, int64_t begun_ms, int64_t patience_ms);
/* A line on stderr, where people read it. */
void client_tell_absence(const struct cli *c, const struct err *e);

/* "42" -> "jobs/42"; a name with a slash stays. ret has 80 bytes. */
MUST_CHECK status_t client_job_name(const char *word, char ret[80], struct err *e);

/* A random UUID (version 4). ret has 37 bytes. */
void client_request_id(char ret[37]);

#endif
