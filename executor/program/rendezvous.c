#include "executor/program/rendezvous.h"

#include "base/alloc.h"
#include "base/cleanup.h"

#include <netinet/in.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

status_t rendezvous_reserve_port(struct reserved_port *ret, struct err *e) {
    /* Binds the port for IPv6 and IPv4, as PyTorch's TCPStore does. On a host without IPv6 it binds IPv4 only. */
    struct sockaddr_in6 six = { .sin6_family = AF_INET6, .sin6_addr = IN6ADDR_ANY_INIT };
    struct sockaddr_in four = { .sin_family = AF_INET };
    socklen_t n = sizeof six;
    CLEANUP(closep) int fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (const struct sockaddr *)&six, sizeof six) < 0) {
        closep(&fd);
        fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0 || bind(fd, (const struct sockaddr *)&four, sizeof four) < 0)
            return err_errno(e, "reserve a TCP port");
    }
    if (getsockname(fd, (struct sockaddr *)&six, &n) < 0)
        return err_errno(e, "read the number of a reserved TCP port");
    /* The port is at the same place in both forms of address. */
    ret->port = ntohs(six.sin6_port);
    ret->fd = fd;
    fd = -1;
    return ST_OK;
}

void rendezvous_address(const char *host, int port, const char *gpu, char ret[RENDEZVOUS_ADDRESS_BYTES]) {
    const int n = snprintf(ret, RENDEZVOUS_ADDRESS_BYTES, "%.255s %d %d", host, port, (int)getppid());
    if (gpu)
        snprintf(ret + n, (size_t)(RENDEZVOUS_ADDRESS_BYTES - n), " %d %.95s", (int)getpid(), *gpu ? gpu : "-");
}

struct address {
    char host[256], gpu[RENDEZVOUS_GPU_BYTES];
    int port, agent, pid;
};

static status_t address_read(const ProtobufCBinaryData *data, int rank, struct address *ret, struct err *e) {
    char text[RENDEZVOUS_ADDRESS_BYTES];
    int end = 0, rest = 0;
    if (data->len < sizeof text) {
        memcpy(text, data->data, data->len);
        text[data->len] = '\0';
        const int n = sscanf(text, "%255s %d %d%n %d %95s%n", ret->host, &ret->port, &ret->agent, &end, &ret->pid,
                             ret->gpu, &rest);
        if ((n == 3 || n == 5) && text[n == 3 ? end : rest] == '\0' && ret->port > 0 && ret->port < 65536)
            return ST_OK;
    }
    return err_set(e, ST_INTERNAL, "the address of rank %d is not a host, a port and an agent", rank);
}

static bool same_agent(const struct address *a, const struct address *b) {
    return a->agent == b->agent && strcmp(a->host, b->host) == 0;
}

static void gpus_gather(const struct address *all, int n, int rank, struct place *ret) {
    size_t used = 0;
    for (int i = 0; i < n && used < sizeof ret->gpus; i++)
        if (same_agent(&all[i], &all[rank]) && *all[i].gpu && strcmp(all[i].gpu, "-") != 0)
            used += (size_t)snprintf(ret->gpus + used, sizeof ret->gpus - used, "%s%s", used ? "," : "", all[i].gpu);
}

static void count(const struct address *all, int n, int rank, struct place *ret) {
    *ret = (struct place){ .master_port = all[0].port };
    snprintf(ret->master_address, sizeof ret->master_address, "%s", all[0].host);
    for (int i = 0; i < n; i++) {
        bool first = true;
        for (int k = 0; k < i && first; k++)
            first = !same_agent(&all[k], &all[i]);
        if (first && same_agent(&all[i], &all[rank]))
            ret->group_rank = ret->groups;
        ret->groups += first;
        if (ret->local_world_size == 0 && same_agent(&all[i], &all[rank]))
            ret->leader = all[i].pid;
        ret->local_rank += i < rank && same_agent(&all[i], &all[rank]);
        ret->local_world_size += same_agent(&all[i], &all[rank]);
    }
}

status_t rendezvous_place(const Trainyard__V1__Rendezvous *all, int rank, int world_size, struct place *ret,
                          struct err *e) {
    CLEANUP(freep) struct address *addresses = alloc_zeroed((size_t)world_size, sizeof *addresses);
    if (all->n_addresses != (size_t)world_size)
        return err_set(e, ST_INTERNAL, "the rendezvous has %zu addresses for %d ranks", all->n_addresses, world_size);
    for (int i = 0; i < world_size; i++)
        TRY(address_read(&all->addresses[i], i, &addresses[i], e));
    count(addresses, world_size, rank, ret);
    gpus_gather(addresses, world_size, rank, ret);
    return ST_OK;
}
