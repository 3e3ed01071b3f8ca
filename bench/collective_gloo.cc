/* The peer of bench_collective: Gloo's own all-reduce (ring, and halving-doubling by bcube), best of both, between
 * processes on this host.
 *
 *     bench_collective_gloo WORLD_SIZE     prints "bytes microseconds" lines: the median over the calls of rank 0 */
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace {

constexpr size_t SMALLEST = 4 << 10, LARGEST = 64 << 20, CALLS_MOST = 300;

double median_us(const std::shared_ptr<gloo::Context> &context, float *x, size_t bytes,
                 gloo::AllreduceOptions::Algorithm algorithm) {
    int calls = (int)std::clamp((size_t)(256 << 20) / bytes, (size_t)8, CALLS_MOST);
    std::vector<double> times;
    for (int i = -2; i < calls; i++) {
        gloo::BarrierOptions barrier(context);
        barrier.setTag(1);
        gloo::barrier(barrier);
        auto begun = std::chrono::steady_clock::now();
        gloo::AllreduceOptions options(context);
        options.setOutput(x, bytes / sizeof(float));
        options.setReduceFunction(
            [](void *c, const void *a, const void *b, size_t n) { gloo::sum<float>(c, a, b, n); });
        options.setAlgorithm(algorithm);
        options.setTag(2);
        gloo::allreduce(options);
        if (i >= 0)
            times.push_back(
                std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begun).count());
    }
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
}

void measure(int rank, int world_size, const char *folder) {
    gloo::transport::tcp::attr attr("127.0.0.1");
    auto device = gloo::transport::tcp::CreateDevice(attr);
    gloo::rendezvous::FileStore store(folder);
    auto context = std::make_shared<gloo::rendezvous::Context>(rank, world_size);
    context->connectFullMesh(store, device);
    std::vector<float> x(LARGEST / sizeof(float));
    for (size_t bytes = SMALLEST; bytes <= LARGEST; bytes *= 4) {
        double ring = median_us(context, x.data(), bytes, gloo::AllreduceOptions::Algorithm::RING);
        double bcube = median_us(context, x.data(), bytes, gloo::AllreduceOptions::Algorithm::BCUBE);
        if (rank == 0) {
            printf("%zu %.1f\n", bytes, std::min(ring, bcube));
            fflush(stdout);
        }
    }
}

} // namespace

int main(int argc, char **argv) {
    int world_size = argc == 2 ? atoi(argv[1]) : 0;
    char folder[] = "/tmp/bench-gloo-XXXXXX";
    if (world_size < 2 || !mkdtemp(folder))
        return 2;
    for (int rank = 0; rank < world_size; rank++)
        if (fork() == 0) {
            measure(rank, world_size, folder);
            _exit(0);
        }
    int bad = 0, status;
    while (wait(&status) > 0)
        bad |= status;
    std::filesystem::remove_all(folder);
    return bad != 0;
}
