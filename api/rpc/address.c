#include "api/rpc/address.h"

#include <ctype.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static status_t parse_unix(const char *text, struct rpc_address *ret, struct err *e) {
    const char *path = text + strlen("unix:");
    if (!strncmp(path, "//", 2))
        path += 2; /* unix:///path is the other form that gRPC accepts */
    if (path[0] != '/')
        return err_set(e, ST_INVALID_ARGUMENT, "the address '%s' needs an absolute path after unix:", text);
    if (strlen(path) >= sizeof ret->path)
        return err_set(e, ST_INVALID_ARGUMENT, "the socket path '%s' is longer than %zu bytes", path,
                       sizeof ret->path - 1);
    ret->is_unix = true;
    strcpy(ret->path, path);
    snprintf(ret->text, sizeof ret->text, "unix:%s", path);
    return ST_OK;
}

static status_t parse_port(const char *text, const char *digits, int *ret, struct err *e) {
    char *end;
    long port = isdigit((unsigned char)digits[0]) ? strtol(digits, &end, 10) : -1;
    if (port < 0 || port > 65535 || *end)
        return err_set(e, ST_INVALID_ARGUMENT, "the address '%s' needs a port from 0 to 65535 after the last colon",
                       text);
    *ret = (int)port;
    return ST_OK;
}

static status_t parse_tcp(const char *text, struct rpc_address *ret, struct err *e) {
    const char *colon = strrchr(text, ':'); /* the last colon: an IPv6 address in brackets contains others */
    if (!colon)
        return err_set(e, ST_INVALID_ARGUMENT, "the address '%s' is neither host:port nor unix:/path", text);
    const char *host = text;
    size_t n = (size_t)(colon - text);
    bool bracketed = n >= 2 && host[0] == '[' && host[n - 1] == ']';
    if (bracketed) {
        host++;
        n -= 2;
    }
    if (n == 0 || n >= sizeof ret->host || strcspn(host, "/%@ \t\r\n") < n || (!bracketed && memchr(host, ':', n)))
        return err_set(e, ST_INVALID_ARGUMENT, "the address '%s' is neither host:port nor unix:/path", text);
    TRY(parse_port(text, colon + 1, &ret->port, e));
    memcpy(ret->host, host, n);
    snprintf(ret->text, sizeof ret->text, bracketed ? "[%s]:%d" : "%s:%d", ret->host, ret->port);
    return ST_OK;
}

status_t rpc_address_parse(const char *text, struct rpc_address *ret, struct err *e) {
    struct rpc_address parsed = { 0 };
    TRY(strncmp(text, "unix:", 5) ? parse_tcp(text, &parsed, e) : parse_unix(text, &parsed, e));
    *ret = parsed;
    return ST_OK;
}

status_t rpc_address_list_parse(const char *text, struct rpc_address_list *ret, struct err *e) {
    ret->n = 0;
    for (const char *from = text;;) {
        char one[RPC_ADDRESS_BYTES];
        const size_t n = strcspn(from, ",");
        if (ret->n == RPC_MAX_ADDRESSES)
            return err_set(e, ST_INVALID_ARGUMENT, "the list has more than %d addresses", RPC_MAX_ADDRESSES);
        if (n >= sizeof one)
            return err_set(e, ST_INVALID_ARGUMENT, "an address has %zu bytes, and may have %zu", n, sizeof one - 1);
        memcpy(one, from, n);
        one[n] = '\0';
        struct rpc_address *address = &ret->items[ret->n++];
        TRY(rpc_address_parse(one, address, e));
        if (!address->is_unix && address->port == 0)
            return err_set(e, ST_INVALID_ARGUMENT, "the address %s has no port to dial", address->text);
        if (!from[n])
            return ST_OK;
        from += n + 1;
    }
}

static bool is_loopback(const struct sockaddr *a) {
    if (a->sa_family == AF_INET)
        return ntohl(((const struct sockaddr_in *)(const void *)a)->sin_addr.s_addr) >> 24 == 127;
    const struct in6_addr *six = &((const struct sockaddr_in6 *)(const void *)a)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(six) || (IN6_IS_ADDR_V4MAPPED(six) && six->s6_addr[12] == 127);
}

status_t rpc_address_is_local(const struct rpc_address *address, bool *ret, struct err *e) {
    if (address->is_unix) {
        *ret = true;
        return ST_OK;
    }
    struct addrinfo hints = { .ai_socktype = SOCK_STREAM }, *found;
    int failed = getaddrinfo(address->host, NULL, &hints, &found);
    if (failed)
        return err_set(e, ST_NOT_FOUND, "the host '%s' cannot be resolved: %s", address->host, gai_strerror(failed));
    bool local = true;
    for (const struct addrinfo *a = found; a; a = a->ai_next)
        local = local && is_loopback(a->ai_addr);
    freeaddrinfo(found);
    *ret = local;
    return ST_OK;
}
