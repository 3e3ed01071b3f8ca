/* Linear regression on two ranks: each has half of the samples, and both sum their gradients over a TCP connection. */
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

static int number_of(const char *name) {
    const char *text = getenv(name);
    if (!text) {
        fprintf(stderr, "%s is not set\n", name);
        exit(2);
    }
    return atoi(text);
}

static int connect_ranks(int rank) {
    struct addrinfo *at = NULL, hints = { .ai_socktype = SOCK_STREAM };
    const int yes = 1;
    if (getaddrinfo(getenv("MASTER_ADDR"), getenv("MASTER_PORT"), &hints, &at) != 0)
        exit(3);
    for (int tries = 0; tries < 3000; tries++, usleep(10000)) {
        int fd = socket(at->ai_family, SOCK_STREAM, 0);
        if (rank == 0) {
            setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
            if (bind(fd, at->ai_addr, at->ai_addrlen) == 0 && listen(fd, 1) == 0)
                return accept(fd, NULL, NULL);
        } else if (connect(fd, at->ai_addr, at->ai_addrlen) == 0)
            return fd;
        close(fd);
    }
    exit(4);
}

static void sum(int peer, double *values, size_t bytes) {
    double other[2];
    if (write(peer, values, bytes) != (ssize_t)bytes || recv(peer, other, bytes, MSG_WAITALL) != (ssize_t)bytes)
        exit(5);
    for (size_t i = 0; i < bytes / sizeof *values; i++)
        values[i] += other[i];
}

int main(void) {
    const int rank = number_of("RANK"), samples = 50;
    const int peer = connect_ranks(rank);
    FILE *metrics = rank == 0 ? fopen(getenv("TRAINYARD_METRICS"), "w") : NULL;
    double weight = 0;
    if (number_of("WORLD_SIZE") != 2)
        return 6;
    for (int step = 1; step <= 20; step++) {
        double sums[2] = { 0, 0 }; /* the gradient and the loss */
        for (int i = rank; i < samples; i += 2) {
            const double x = (double)i / samples, error = weight * x - 3 * x;
            sums[0] += 2 * error * x / samples;
            sums[1] += error * error / samples;
        }
        sum(peer, sums, sizeof sums);
        weight -= 1.0 * sums[0];
        if (metrics && fprintf(metrics, "{\"step\": %d, \"loss\": %.17g}\n", step, sums[1]) < 0)
            return 7;
    }
    if (metrics)
        fclose(metrics);
    printf("rank %d has %.6f\n", rank, weight);
    return 0;
}
