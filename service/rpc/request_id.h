/* Request ids. A client that repeats a mutation with the same id does not cause it twice. */
#ifndef SERVICE_RPC_REQUEST_ID_H
#define SERVICE_RPC_REQUEST_ID_H

#include "base/status.h"

/* Capacity for a UUID, and for an id that the service creates. */
#define REQUEST_ID_BYTES 64

/* Reads a UUID of any version in its canonical form of 36 characters; ret gets it in lower case. If the client gave no
 * id (""), ret is "". INVALID_ARGUMENT for anything else. */
MUST_CHECK status_t request_id_read(const char *given, char ret[REQUEST_ID_BYTES], struct err *e);

/* Creates an id for a call without one. It is not a UUID, so no client can send the same id. */
MUST_CHECK status_t request_id_make(char ret[REQUEST_ID_BYTES], struct err *e);

#endif
