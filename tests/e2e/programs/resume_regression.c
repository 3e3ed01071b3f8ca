/* resume_regression STEPS: as regression.c, slowly. Rank 0 saves every five steps; all continue from there. */
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

static void save(int step, double weight) {
    char part[4096], whole[4096];
    const char *folder = getenv("TRAINYARD_CHECKPOINTS");
    snprintf(part, sizeof part, "%s/part", folder);
    snprintf(whole, sizeof whole, "%s/step-%d", folder, step);
    FILE *f = fopen(part, "w");
    if (!f || fprintf(f, "%d %.17g\n", step, weight) < 0 || fclose(f) != 0 || rename(part, whole) != 0)
        exit(8);
}

static int load(double *weight) {
    int step = 0;
    const char *path = getenv("TRAINYARD_RESUME");
    FILE *f = path && *path ? fopen(path, "r") : NULL;
    if (path && *path && (!f || fscanf(f, "%d %lg", &step, weight) != 2))
        exit(9);
    if (f)
        fclose(f);
    return step;
}

int main(int argc, char **argv) {
    const int rank = number_of("RANK"), samples = 50, steps = argc > 1 ? atoi(argv[1]) : 20;
    const int peer = connect_ranks(rank);
    FILE *metrics = rank == 0 ? fopen(getenv("TRAINYARD_METRICS"), "w") : NULL;
    double weight = 0;
    for (int step = load(&weight) + 1; step <= steps; step++) {
        double sums[2] = { 0, 0 }; /* the gradient and the loss */
        for (int i = rank; i < samples; i += 2) {
            const double x = (double)i / samples, error = weight * x - 3 * x;
            sums[0] += 2 * error * x / samples;
            sums[1] += error * error / samples;
        }
        usleep(30000);
        sum(peer, sums, sizeof sums);
        weight -= 0.01 * sums[0];
        if (metrics &&
            (fprintf(metrics, "{\"step\": %d, \"loss\": %.17g}\n", step, sums[1]) < 0 || fflush(metrics) != 0))
            return 7;
        if (rank == 0 && step % 5 == 0)
            save(step, weight);
    }
    if (metrics)
        fclose(metrics);
    printf("rank %d ends\n", rank);
    return 0;
}
