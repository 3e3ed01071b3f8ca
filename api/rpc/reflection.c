#include "api/rpc/reflection.h"

#include "base/alloc.h"

#include "api/rpc/server_state.h"

#include <grpc/reflection/v1/reflection.pb-c.h>
#include <grpc/reflection/v1alpha/reflection.pb-c.h>
#include <string.h>

/* v1alpha is the former name of v1, with the same fields and numbers, so v1's types are used for both. */
typedef Grpc__Reflection__V1__ServerReflectionRequest request_t;
typedef Grpc__Reflection__V1__ServerReflectionResponse response_t;
_Static_assert(sizeof(request_t) == sizeof(Grpc__Reflection__V1alpha__ServerReflectionRequest), "v1alpha differs");
#define ASKED(what)  GRPC__REFLECTION__V1__SERVER_REFLECTION_REQUEST__MESSAGE_REQUEST_##what
#define ANSWER(what) GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__MESSAGE_RESPONSE_##what

enum { MAX_EXTENSIONS = 64 };

/* The functions below complete the response and send it. Its parts may be on their stack, because rpc_send copies. */
static void send(struct rpc_call *call, const response_t *response) {
    if (rpc_send(call, &response->base) == RPC_FULL)
        rpc_finish(call, ST_RESOURCE_EXHAUSTED, "the client asks faster than it reads");
}

static void send_error(struct rpc_call *call, response_t *response, status_t st, const char *what) {
    Grpc__Reflection__V1__ErrorResponse error = GRPC__REFLECTION__V1__ERROR_RESPONSE__INIT;
    struct err sentence;
    error.error_code = (int)err_set(&sentence, st, "%s", what);
    error.error_message = sentence.msg;
    response->message_response_case = ANSWER(ERROR_RESPONSE);
    response->error_response = &error;
    send(call, response);
}

static void send_file(struct rpc_call *call, response_t *response, int file, const char *missing) {
    const struct rpc_server *s = rpc_service(call);
    if (file < 0) {
        struct err e;
        send_error(call, response, err_set(&e, ST_NOT_FOUND, "'%s' is not known here", missing), e.msg);
        return;
    }
    Grpc__Reflection__V1__FileDescriptorResponse files = GRPC__REFLECTION__V1__FILE_DESCRIPTOR_RESPONSE__INIT;
    ProtobufCBinaryData *data = alloc_zeroed(descriptors_count(s->descriptors), sizeof *data);
    files.n_file_descriptor_proto = descriptors_with_imports(s->descriptors, file, data);
    files.file_descriptor_proto = data;
    response->message_response_case = ANSWER(FILE_DESCRIPTOR_RESPONSE);
    response->file_descriptor_response = &files;
    send(call, response);
    free(data);
}

/* Routes are sorted by path, so that the methods of a service are adjacent. */
static void send_services(struct rpc_call *call, response_t *response) {
    const struct rpc_server *s = rpc_service(call);
    Grpc__Reflection__V1__ListServiceResponse list = GRPC__REFLECTION__V1__LIST_SERVICE_RESPONSE__INIT;
    Grpc__Reflection__V1__ServiceResponse *services = alloc_zeroed(s->n_routes, sizeof *services);
    Grpc__Reflection__V1__ServiceResponse **pointers = alloc_zeroed(s->n_routes, sizeof(void *));
    for (size_t i = 0; i < s->n_routes; i++) {
        if (i && !strcmp(s->routes[i].service_name, s->routes[i - 1].service_name))
            continue;
        Grpc__Reflection__V1__ServiceResponse *service = &services[list.n_service];
        grpc__reflection__v1__service_response__init(service);
        service->name = (char *)s->routes[i].service_name;
        pointers[list.n_service++] = service;
    }
    list.service = pointers;
    response->message_response_case = ANSWER(LIST_SERVICES_RESPONSE);
    response->list_services_response = &list;
    send(call, response);
    free(services);
    free(pointers);
}

/* Lists the extensions of a message. In proto3 only options have extensions. */
static void send_extensions(struct rpc_call *call, response_t *response, const char *type) {
    const struct rpc_server *s = rpc_service(call);
    if (!descriptors_is_message(s->descriptors, type)) {
        send_file(call, response, -1, type);
        return;
    }
    Grpc__Reflection__V1__ExtensionNumberResponse numbers = GRPC__REFLECTION__V1__EXTENSION_NUMBER_RESPONSE__INIT;
    int32_t found[MAX_EXTENSIONS];
    numbers.base_type_name = (char *)type;
    numbers.n_extension_number = descriptors_extensions(s->descriptors, type, found, MAX_EXTENSIONS);
    numbers.extension_number = found;
    response->message_response_case = ANSWER(ALL_EXTENSION_NUMBERS_RESPONSE);
    response->all_extension_numbers_response = &numbers;
    send(call, response);
}

static void answer(struct rpc_call *call, const ProtobufCMessage *message) {
    const struct rpc_server *s = rpc_service(call);
    const request_t *request = (const void *)message;
    response_t response = GRPC__REFLECTION__V1__SERVER_REFLECTION_RESPONSE__INIT;
    response.valid_host = request->host;
    response.original_request = (request_t *)(uintptr_t)request;
    switch (request->message_request_case) {
    case ASKED(LIST_SERVICES): send_services(call, &response); break;
    case ASKED(FILE_BY_FILENAME):
        send_file(call, &response, descriptors_file_by_name(s->descriptors, request->file_by_filename),
                  request->file_by_filename);
        break;
    case ASKED(FILE_CONTAINING_SYMBOL):
        send_file(call, &response, descriptors_file_by_symbol(s->descriptors, request->file_containing_symbol),
                  request->file_containing_symbol);
        break;
    case ASKED(FILE_CONTAINING_EXTENSION):
        send_file(call, &response,
                  descriptors_file_by_extension(s->descriptors, request->file_containing_extension->containing_type,
                                                request->file_containing_extension->extension_number),
                  request->file_containing_extension->containing_type);
        break;
    case ASKED(ALL_EXTENSION_NUMBERS_OF_TYPE):
        send_extensions(call, &response, request->all_extension_numbers_of_type);
        break;
    default: send_error(call, &response, ST_INVALID_ARGUMENT, "the request has no part that this server knows");
    }
}

static void asked_all(struct rpc_call *call) { rpc_finish(call, ST_OK, NULL); }

static const struct rpc_method methods[] = {
    { "ServerReflectionInfo", RPC_BIDI, .events = { .message = answer, .half_closed = asked_all } },
};

status_t reflection_add(struct rpc_server *s, struct err *e) {
    int rule = s->config.access ? s->config.access->rule_reflection : RULE_ANYONE;
    TRY(server_add_with_rule(s, &grpc__reflection__v1__server_reflection__descriptor, methods, 1, s, rule, e));
    return server_add_with_rule(s, &grpc__reflection__v1alpha__server_reflection__descriptor, methods, 1, s, rule, e);
}
