/* The connection to the controller that every command uses. */
#ifndef CLI_CLIENT_H
#define CLI_CLIENT_H

#include "api/codec/message.h"
#include "api/rpc/client.h"
#include "cli/command.h"
#include "cli/context/context.h"

#include <trainyard/v1/job.pb-c.h>
#include <trainyard/v1/status.pb-c.h>

struct client;

/* Opens c->client, if it is not open yet. The address is --controller, else that of the context --context, else
 * TRAINYARD_CONTROLLER, else the content of ./.trainyard/address, else that of the current context, else
 * 127.0.0.1:7700. A context has its own identity; else the identity comes from TRAINYARD_TOKEN or TRAINYARD_TOKEN_FILE,
 * TRAINYARD_CA, TRAINYARD_CERT and TRAINYARD_KEY. The first call connects, not this function. All calls of a client
 * have one x-request-id, a random UUID. */
MUST_CHECK status_t client_open(struct cli *c, struct err *e);
/* Opens c->client, which is not open yet, to this controller. */
MUST_CHECK status_t client_open_context(struct cli *c, const Trainyard__Cli__Context *x, struct err *e);
/* The address of the open client. */
const char *client_address(const struct cli *c);
/* The channel of the open client. */
struct rpc_channel *client_channel(const struct cli *c);
/* Whether an option, the variable, a file or a context names a controller. */
bool client_named(const struct cli *c);
struct client *client_close(struct client *client); /* NULL is fine; returns NULL */

/* Makes one call that only reads, with the default deadline. Repeats it for 3 s while the controller is unreachable,
 * and for a minute while the controller reports that its database is. The caller frees the reply:
 * CLEANUP(message_freep). */
MUST_CHECK status_t client_call(struct cli *c, const ProtobufCServiceDescriptor *service, const char *method,
                                const ProtobufCMessage *request, ProtobufCMessage **ret, struct err *e);

/* Like client_call, but not repeated while the controller is unreachable. */
MUST_CHECK status_t client_call_once(struct cli *c, const ProtobufCServiceDescriptor *service, const char *method,
                                     const ProtobufCMessage *request, ProtobufCMessage **ret, struct err *e);

/* Like client_call for a mutation: repeated for 20 s. The mutation must take effect once, by its request_id, or change
 * nothing when repeated. */
MUST_CHECK status_t client_call_again(struct cli *c, const ProtobufCServiceDescriptor *service, const char *method,
                                      const ProtobufCMessage *request, ProtobufCMessage **ret, struct err *e);

/* Like client_call for polling an operation that the user waits for (pause --wait): repeated for half an hour, with a
 * line on stderr. client_list_waiting is the same for client_list. */
MUST_CHECK status_t client_call_waiting(struct cli *c, const ProtobufCServiceDescriptor *service, const char *method,
                                        const ProtobufCMessage *request, ProtobufCMessage **ret, struct err *e);

/* Makes a List call until the last page or until `limit` elements (CLIENT_ALL: all), and joins the pages into one
 * reply. The request has the fields page_size and page_token, which are set here. The reply has one repeated field and
 * next_page_token, which is not empty if the limit has left elements out. */
#define CLIENT_ALL INT64_MAX
MUST_CHECK status_t client_list(struct cli *c, const ProtobufCServiceDescriptor *service, const char *method,
                                ProtobufCMessage *request, int64_t limit, ProtobufCMessage **ret, struct err *e);
MUST_CHECK status_t client_list_waiting(struct cli *c, const ProtobufCServiceDescriptor *service, const char *method,
                                        ProtobufCMessage *request, int64_t limit, ProtobufCMessage **ret,
                                        struct err *e);
/* Moves the elements of page's repeated field to the end of that of `all`, a message of the same type. */
void client_join(ProtobufCMessage *all, ProtobufCMessage *page);

MUST_CHECK status_t client_stream(struct cli *c, const ProtobufCServiceDescriptor *service, const char *method,
                                  const ProtobufCMessage *request, struct rpc_stream **ret, struct err *e);

/* Whether a call that ended with st should be repeated: the controller is unreachable since less than patience_ms after
 * begun_ms. With a reason, only its database is unreachable, and the limit is at least a minute. */
bool client_waits(status_t st, const char *reason, int64_t begun_ms, int64_t patience_ms);
/* Reports e on stderr, except with -o json. */
void client_report_absence(const struct cli *c, const struct err *e);

/* GetStatus with client_call. */
MUST_CHECK status_t client_get_status(struct cli *c, Trainyard__V1__GetStatusResponse **ret, struct err *e);
/* GetJob with client_call; name: "jobs/42". */
MUST_CHECK status_t client_get_job(struct cli *c, const char *name, Trainyard__V1__Job **ret, struct err *e);

/* A random UUID (version 4). ret has 37 bytes. */
void client_request_id(char ret[37]);

#endif
