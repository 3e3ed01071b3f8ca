/* The transport over TCP, by Gloo: every rank is connected with every other one.
 *
 * Transfers: begin gives each message a Gloo slot (stream and message number) and posts it from the thread of Gloo's
 * loop (Poster). finish waits for it. Deadlines are kept by a thread of this file, because Gloo closes all connections
 * when one of its own deadlines passes.
 *
 * Failures: Gloo reports the end of a connection only to operations that have not begun. So this rank always has a
 * receive of a close notice from each peer pending, and the watch thread waits for all of them. A rank that fails first
 * sends each peer the reason as a close notice, waits up to 2 s for each peer's own notice, and then closes its
 * connections. A rank whose connection ends without a notice was killed: every survivor names that rank. An orderly
 * close sends a goodbye instead of a reason. */
#include "engine/collective/address_list.h"
#include "engine/collective/exchange.h"

#include "base/clock.h"
#include "base/limits.h"

#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/store.h>
#include <gloo/transport/tcp/device.h>
#include <gloo/transport/tcp/loop.h>
#include <gloo/transport/unbound_buffer.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <netdb.h>
#include <string>
#include <sys/eventfd.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

using gloo::transport::UnboundBuffer;
using std::chrono::milliseconds;

/* Longer than any job; Gloo computes with nanoseconds in 63 bits. */
constexpr milliseconds FOREVER = std::chrono::hours(24 * 365 * 100);
/* All addresses are known when the mesh is connected: a rank that does not answer by then is gone. */
constexpr milliseconds CONNECT = std::chrono::seconds(30);
/* A goodbye takes longer only on a connection that is stuck: its receive is pending. */
constexpr milliseconds GOODBYE_SEND = std::chrono::seconds(2);
/* A rank that fails waits this long for the notices of the others, which answer at once unless they are stopped. */
constexpr milliseconds REASON_WAIT = std::chrono::seconds(2);
/* At an orderly close a rank waits this long for the goodbyes of the others, which are in the same last call. */
constexpr milliseconds GOODBYE_WAIT = milliseconds(500);
/* A slot is the stream in the upper byte and the number of a message in the rest. This slot belongs to no stream. */
constexpr uint64_t CLOSE_SLOT = (uint64_t)COLLECTIVE_STREAMS << 56;
/* Wakes the watch thread of a peer: a reason has arrived, or a goodbye. */
constexpr char REASON = 1, BYE = 0;
/* Nothing is ever sent on it: posting a receive fails only if the connection has ended. */
constexpr uint64_t PROBE_SLOT = CLOSE_SLOT + 1;

/* Gloo asks its store for the address list of each rank; one rendezvous answers all of these questions. The lists are
 * packed, and each is unpacked when Gloo asks for it: all of them would be large (address_list.h). */
class RendezvousStore : public gloo::rendezvous::Store {
  public:
    explicit RendezvousStore(const collective_config &config) : config_(config), all_(config.world_size) {
        bytes_init(&mine_, MAX_LIST_BYTES);
        bytes_init(&list_, MAX_LIST_BYTES);
        for (bytes &b : all_)
            bytes_init(&b, LIMIT_RENDEZVOUS_BYTES);
    }
    ~RendezvousStore() override {
        bytes_done(&mine_);
        bytes_done(&list_);
        for (bytes &b : all_)
            bytes_done(&b);
    }
    /* Gloo also stores host names under "rank_<r>", for a local rank number that TCP never uses. */
    void set(const std::string &key, const std::vector<char> &data) override {
        const int peers = config_.world_size - 1;
        if (is_host(key))
            return;
        check(address_list_pack(data.data(), peers, data.size() / (size_t)peers, &mine_, &error));
        check(config_.rendezvous(config_.rendezvous_ctx, mine_.data, mine_.len, all_.data(), &error));
    }
    std::vector<char> get(const std::string &key) override {
        if (is_host(key))
            return {};
        const bytes &b = all_.at(std::stoul(key));
        bytes_clear(&list_);
        check(address_list_unpack(b.data, b.len, config_.world_size - 1, &list_, &error));
        return std::vector<char>(list_.data, list_.data + list_.len);
    }
    void wait(const std::vector<std::string> &) override {}
    void wait(const std::vector<std::string> &, const milliseconds &) override {}

    status_t status = ST_OK;
    struct err error = {};

  private:
    /* Addresses of one rank for LIMIT_WORLD_SIZE peers. */
    enum { MAX_LIST_BYTES = LIMIT_WORLD_SIZE * 1024 };
    static bool is_host(const std::string &key) { return key.compare(0, 5, "rank_") == 0; }
    void check(status_t st) {
        status = st;
        if (status != ST_OK)
            throw std::runtime_error("the rendezvous failed");
    }
    const collective_config &config_;
    std::vector<bytes> all_;
    bytes mine_, list_;
};

struct Transfer {
    std::unique_ptr<UnboundBuffer> buffer; /* empty: this handle is free */
    int peer;
    bool is_send;
    uint64_t slot;
};

struct Stream {
    std::deque<Transfer> transfers;       /* grows to the largest number in flight at once; elements never move */
    std::vector<uint64_t> sent, received; /* messages so far, by peer */
    int64_t waiting_until_ms = 0;         /* 0: its thread does not wait */
    int peer_awaited = 0;
};

/* Gloo prefixes its sentences with "[file:line] ". */
const char *reason_of(const std::exception &x) {
    const char *text = x.what(), *end = *text == '[' ? strstr(text, "] ") : nullptr;
    return end ? end + 2 : text;
}

/* Posts transfers from the thread of Gloo's loop. If their own threads posted them, they would hold the lock of a
 * connection when something arrives on it. The loop spins for that lock; if both threads share a core, it spins until
 * the scheduler takes the core away, which costs milliseconds for each message. */
class Poster : public gloo::transport::tcp::Handler {
    using Device = gloo::transport::tcp::Device;
    /* Gloo of 2020 (Ubuntu 22.04) has these protected, and unregisters without the handler. */
    struct Open : Device {
        using Device::registerDescriptor;
        using Device::unregisterDescriptor;
    };
    void unregister(void (Device::*f)(int, Handler *)) { ((*device_).*f)(event_, this); }
    void unregister(void (Device::*f)(int)) { ((*device_).*f)(event_); }

  public:
    Poster(std::shared_ptr<gloo::transport::Device> device, std::mutex &mutex, const bool &closing, const bool &closed)
        : device_(std::dynamic_pointer_cast<Device>(device)), mutex_(mutex), closing_(closing), closed_(closed) {
        if (!device_ || (event_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) < 0)
            throw std::runtime_error("no eventfd for the transfers");
        ((*device_).*(&Open::registerDescriptor))(event_, EPOLLIN, this);
    }
    ~Poster() override {
        unregister(&Open::unregisterDescriptor); /* returns after the last call of handleEvents */
        std::lock_guard<std::mutex> lock(mutex_);
        close(event_);
    }
    /* With the mutex held. */
    void post(Transfer *t) {
        posted_.push_back(t);
        if (posted_.size() == 1)
            eventfd_write(event_, 1);
    }
    /* Closing a connection waits for an iteration of the loop, which is up to 10 ms away. This starts one at once. */
    void wake_to_close() {
        woken_ = true;
        eventfd_write(event_, 1);
    }
    void handleEvents(int) override {
        eventfd_t count;
        std::lock_guard<std::mutex> lock(mutex_);
        if (!woken_ || closed_)
            eventfd_read(event_, &count);
        for (Transfer *t : posted_) {
            /* The thread that closes a connection holds its lock and waits for this thread. */
            if (closing_)
                break;
            try {
                if (t->is_send)
                    t->buffer->send(t->peer, t->slot);
                else
                    t->buffer->recv(t->peer, t->slot);
            } catch (const std::exception &) {
                t->buffer->abortWaitRecv();
                t->buffer->abortWaitSend();
            }
        }
        posted_.clear();
    }

  private:
    std::shared_ptr<Device> device_;
    std::mutex &mutex_;
    const bool &closing_, &closed_;
    std::atomic<bool> woken_{ false };
    int event_ = -1;
    std::vector<Transfer *> posted_;
};

class GlooTransport : public collective_transport {
  public:
    explicit GlooTransport(const collective_config &config)
        : rank_(config.rank), world_size_(config.world_size), timeout_(config.timeout_ms) {
        for (Stream &c : streams_) {
            c.sent.resize(world_size_);
            c.received.resize(world_size_);
        }
    }
    ~GlooTransport();

    status_t connect(const collective_config &config, const std::string &host, struct err *e);
    status_t begin(int stream, int peer, void *data, size_t n, bool is_send, int *ret, struct err *e);
    status_t finish(int stream, int handle, struct err *e);
    status_t check(struct err *e);
    void abort(const char *reason);

  private:
    void watch();
    void keep_deadlines();
    void send_goodbyes();
    void send_reasons(const struct err &sentence, std::vector<std::unique_ptr<UnboundBuffer>> *sent);
    void await_reasons();
    status_t reason_of_peer(int peer, struct err *e);
    status_t find_lost_peer(int fallback, const std::string &reason, struct err *e);
    void fail(status_t status, const struct err &error);
    status_t failed(struct err *e);

    const int rank_, world_size_;
    const milliseconds timeout_;
    std::shared_ptr<gloo::transport::Device> device_;
    std::shared_ptr<gloo::rendezvous::Context> context_;

    std::mutex mutex_; /* protects everything below, up to the threads */
    std::condition_variable changed_;
    std::array<Stream, COLLECTIVE_STREAMS> streams_;
    bool closing_ = false;    /* no further transfer is posted */
    status_t status_ = ST_OK; /* the first failure */
    struct err error_ = {};
    bool closed_ = false; /* after a failure: no thread of Gloo touches a caller's memory from now on */
    bool done_ = false;
    bool leaving_ = false; /* goodbyes are sent: no reason follows */
    int goodbyes_ = 0;

    /* A receive from every peer is always pending here, so that the end of a connection is noticed at once, even
     * while the other threads wait for something else. */
    std::vector<char> goodbye_bytes_;
    std::vector<struct err> reasons_;                           /* by peer: why it failed; empty after a goodbye */
    std::vector<char> notice_received_;                         /* by peer: its notice was waited for */
    bool reasons_received_ = false;                             /* every peer has sent a notice or is lost */
    std::vector<std::unique_ptr<UnboundBuffer>> close_notices_; /* by peer: the receive of its notice */
    std::unique_ptr<UnboundBuffer> watch_, probe_;
    std::mutex notices_mutex_; /* protects the notices and the probe */
    std::unique_ptr<Poster> poster_;
    std::thread watcher_, deadlines_;
};

status_t GlooTransport::connect(const collective_config &config, const std::string &host, struct err *e) {
    RendezvousStore store(config);
    try {
        gloo::transport::tcp::attr attr;
        attr.hostname = host;
        device_ = gloo::transport::tcp::CreateDevice(attr);
        context_ = std::make_shared<gloo::rendezvous::Context>(rank_, world_size_);
        context_->setTimeout(std::min(timeout_, CONNECT));
        context_->connectFullMesh(store, device_);

        goodbye_bytes_.resize(world_size_ + 1);
        reasons_.resize(world_size_);
        notice_received_.resize(world_size_);
        watch_ = context_->createUnboundBuffer(goodbye_bytes_.data(), world_size_);
        probe_ = context_->createUnboundBuffer(&goodbye_bytes_[world_size_], 1);
        close_notices_.resize(world_size_);
        for (int peer = 0; peer < world_size_; peer++) {
            if (peer == rank_)
                continue;
            /* In this order: when a connection ends, its notice fails before the watch thread wakes. */
            close_notices_[peer] = context_->createUnboundBuffer(reasons_[peer].msg, sizeof reasons_[peer].msg);
            close_notices_[peer]->recv(peer, CLOSE_SLOT);
            watch_->recv(peer, CLOSE_SLOT, peer, 1);
        }
        poster_ = std::make_unique<Poster>(device_, mutex_, closing_, closed_);
        watcher_ = std::thread(&GlooTransport::watch, this);
        deadlines_ = std::thread(&GlooTransport::keep_deadlines, this);
    } catch (const std::exception &x) {
        if (store.status != ST_OK)
            return err_set(e, store.status, "%s", store.error.msg);
        return err_set(
            e, strstr(x.what(), "imeout") || strstr(x.what(), "imed out") ? ST_DEADLINE_EXCEEDED : ST_UNAVAILABLE,
            "connect rank %d at %s to its %d peers: %s", rank_, host.c_str(), world_size_ - 1, reason_of(x));
    }
    return ST_OK;
}

/* Ends after an error, a reason, the last goodbye, or when the transport is destroyed. */
void GlooTransport::watch() {
    try {
        int peer;
        while (watch_->waitRecv(&peer, FOREVER)) {
            if (goodbye_bytes_[peer] == REASON) {
                struct err error;
                fail(reason_of_peer(peer, &error), error);
                return;
            }
            std::lock_guard<std::mutex> lock(mutex_);
            changed_.notify_all();
            if (++goodbyes_ == world_size_ - 1)
                return;
        }
    } catch (const std::exception &x) {
        {
            std::lock_guard<std::mutex> lock(mutex_);
            closing_ = true;
        }
        struct err error;
        fail(find_lost_peer(-1, reason_of(x), &error), error);
    }
}

/* The reason has arrived: the byte that wakes the watch thread came after it. */
status_t GlooTransport::reason_of_peer(int peer, struct err *e) {
    std::lock_guard<std::mutex> lock(notices_mutex_);
    if (!notice_received_[peer])
        close_notices_[peer]->waitRecv(FOREVER);
    notice_received_[peer] = true;
    return err_set(e, ST_UNAVAILABLE, "%s", reasons_[peer].msg);
}

/* Finds the peer whose end came first. A rank that fails sends a reason, and closes when all others have sent theirs
 * too; so a rank whose connection ends without a reason was killed, or stood still for longer than REASON_WAIT. A
 * reason counts more than a lost connection. fallback: the peer to name when nothing identifies one.
 *
 * Waiting for the notice of an ended connection throws, unless a reason has arrived on it; then posting a new receive
 * throws. On connections that are open the aborted wait returns at once. */
status_t GlooTransport::find_lost_peer(int fallback, const std::string &reason, struct err *e) {
    std::lock_guard<std::mutex> lock(notices_mutex_);
    int lost = fallback;
    std::string its_reason = reason;
    for (int peer = 0; peer < world_size_; peer++) {
        if (peer == rank_)
            continue;
        try {
            close_notices_[peer]->abortWaitRecv();
            close_notices_[peer]->waitRecv(FOREVER);
        } catch (const std::exception &x) {
            lost = peer;
            its_reason = reason_of(x);
            continue;
        }
        try {
            probe_->recv(peer, PROBE_SLOT);
        } catch (const std::exception &) {
            if (*reasons_[peer].msg)
                return err_set(e, ST_UNAVAILABLE, "%s", reasons_[peer].msg);
        }
    }
    return err_set(e, ST_UNAVAILABLE, "rank %d went away: %s", lost, its_reason.c_str());
}

/* Gloo closes all connections when one of its own time-outs passes, so every wait in Gloo is without one. */
void GlooTransport::keep_deadlines() {
    const milliseconds tick = std::min(milliseconds(100), timeout_ / 8 + milliseconds(1));
    std::unique_lock<std::mutex> lock(mutex_);
    while (!done_ && status_ == ST_OK) {
        changed_.wait_for(lock, tick, [this] { return done_ || status_ != ST_OK; });
        int64_t now = clock_mono_ms();
        for (Stream &c : streams_) {
            if (!c.waiting_until_ms || now < c.waiting_until_ms || status_ != ST_OK)
                continue;
            struct err error;
            status_t status = err_set(&error, ST_DEADLINE_EXCEEDED, "rank %d did nothing for %lld ms", c.peer_awaited,
                                      (long long)timeout_.count());
            lock.unlock();
            fail(status, error);
            return;
        }
    }
}

/* Keeps the first failure. Sends the reason to the peers, closes all connections so that they fail too, and wakes the
 * other threads of this rank. */
void GlooTransport::fail(status_t status, const struct err &error) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (status_ != ST_OK)
        return;
    const bool sends_reasons = !leaving_;
    closing_ = true;
    status_ = status;
    error_ = error;
    for (Stream &stream : streams_)
        for (Transfer &t : stream.transfers)
            if (t.buffer) {
                t.buffer->abortWaitRecv();
                t.buffer->abortWaitSend();
            }
    watch_->abortWaitRecv();
    changed_.notify_all();
    lock.unlock();
    struct err sentence;
    std::vector<std::unique_ptr<UnboundBuffer>> sent; /* needed until the connections are closed */
    if (sends_reasons) {
        status_ignore(status == ST_UNAVAILABLE ? err_set(&sentence, status, "%s", error.msg)
                                               : err_set(&sentence, status, "rank %d went away: %s", rank_, error.msg));
        send_reasons(sentence, &sent);
        await_reasons();
    }
    poster_->wake_to_close();
    context_->closeConnections();
    lock.lock();
    closed_ = true;
    changed_.notify_all();
}

status_t GlooTransport::failed(struct err *e) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this] { return closed_; });
    return err_set(e, status_, "%s", error_.msg);
}

status_t GlooTransport::check(struct err *e) {
    std::lock_guard<std::mutex> lock(mutex_);
    return status_ == ST_OK ? ST_OK : err_set(e, status_, "%s", error_.msg);
}

void GlooTransport::abort(const char *reason) {
    struct err error;
    fail(err_set(&error, ST_CANCELLED, "rank %d gave up: %s", rank_, reason), error);
}

status_t GlooTransport::begin(int stream, int peer, void *data, size_t n, bool is_send, int *ret, struct err *e) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (closing_) {
        lock.unlock();
        return failed(e);
    }
    Stream &c = streams_[stream];
    size_t handle = 0;
    while (handle < c.transfers.size() && c.transfers[handle].buffer)
        handle++;
    if (handle == c.transfers.size())
        c.transfers.emplace_back();
    uint64_t slot = (uint64_t)stream << 56 | (is_send ? c.sent : c.received)[peer]++;
    c.transfers[handle] = { context_->createUnboundBuffer(data, n), peer, is_send, slot };
    poster_->post(&c.transfers[handle]);
    *ret = (int)handle;
    return ST_OK;
}

status_t GlooTransport::finish(int stream, int handle, struct err *e) {
    Stream &c = streams_[stream];
    Transfer &t = c.transfers[(size_t)handle];
    {
        std::lock_guard<std::mutex> lock(mutex_);
        c.peer_awaited = t.peer;
        c.waiting_until_ms = clock_mono_ms() + timeout_.count();
    }
    bool arrived = false;
    std::string reason = "its connection is closed";
    try {
        arrived = t.is_send ? t.buffer->waitSend(FOREVER) : t.buffer->waitRecv(FOREVER);
    } catch (const std::exception &x) {
        reason = reason_of(x);
    }
    if (!arrived) {
        struct err error = {};
        if (check(&error) == ST_OK)
            fail(find_lost_peer(t.peer, reason, &error), error);
        return failed(e);
    }
    std::lock_guard<std::mutex> lock(mutex_);
    c.waiting_until_ms = 0;
    t.buffer.reset();
    return ST_OK;
}

/* Sends each peer the reason as its notice, and a byte to wake its watch thread. The name of a lost rank is passed on
 * as it was received. */
void GlooTransport::send_reasons(const struct err &sentence, std::vector<std::unique_ptr<UnboundBuffer>> *sent) {
    static char waker = REASON;
    for (int peer = 0; peer < world_size_; peer++)
        try {
            if (peer == rank_)
                continue;
            sent->push_back(context_->createUnboundBuffer(const_cast<char *>(sentence.msg), strlen(sentence.msg) + 1));
            sent->back()->send(peer, CLOSE_SLOT);
            sent->push_back(context_->createUnboundBuffer(&waker, 1));
            sent->back()->send(peer, CLOSE_SLOT);
        } catch (const std::exception &) {
            /* that peer is gone */
        }
}

/* Waits until each peer has sent a notice or is lost. After that no peer searches for the first loss, so that closing
 * these connections is not mistaken for a death. */
void GlooTransport::await_reasons() try {
    std::lock_guard<std::mutex> blaming(notices_mutex_);
    std::thread limit([this] {
        std::unique_lock<std::mutex> lock(mutex_);
        if (changed_.wait_for(lock, REASON_WAIT, [this] { return reasons_received_; }))
            return;
        for (auto &notice : close_notices_)
            if (notice)
                notice->abortWaitRecv();
    });
    for (int peer = 0; peer < world_size_; peer++)
        try {
            if (peer != rank_ && !notice_received_[peer])
                close_notices_[peer]->waitRecv(FOREVER);
        } catch (const std::exception &) {
            /* that peer is gone */
        }
    {
        std::lock_guard<std::mutex> lock(mutex_);
        reasons_received_ = true;
        changed_.notify_all();
    }
    limit.join();
} catch (const std::system_error &) {
    /* without a thread that limits the wait there is no wait */
}

/* Peers may still be in their last call with each other: without a notice, the end of this rank's connections would
 * look like a death. Sends one byte for each peer's notice and one for its watch thread. */
void GlooTransport::send_goodbyes() {
    char byte = BYE;
    std::vector<std::unique_ptr<UnboundBuffer>> sent;
    for (int peer = 0; peer < world_size_; peer++)
        for (int i = 0; i < 2 && peer != rank_; i++) {
            sent.push_back(context_->createUnboundBuffer(&byte, 1));
            sent.back()->send(peer, CLOSE_SLOT);
        }
    for (auto &buffer : sent)
        buffer->waitSend(GOODBYE_SEND);
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, GOODBYE_WAIT, [this] { return goodbyes_ == world_size_ - 1 || status_ != ST_OK; });
}

GlooTransport::~GlooTransport() {
    if (watcher_.joinable()) {
        std::unique_lock<std::mutex> lock(mutex_);
        leaving_ = status_ == ST_OK && !closing_ && deadlines_.joinable();
        lock.unlock();
        try {
            if (leaving_)
                send_goodbyes();
        } catch (const std::exception &) {
            /* a peer closed first or is gone: it needs no goodbye */
        }
        watch_->abortWaitRecv();
        watcher_.join();
        lock.lock();
        closing_ = done_ = true;
        changed_.notify_all();
        lock.unlock();
        if (deadlines_.joinable()) /* else the system refused the thread, and nothing was opened */
            deadlines_.join();
    }
    poster_.reset();
    /* Connections end before the buffers that their operations point to. */
    context_.reset();
    for (Stream &stream : streams_)
        for (Transfer &t : stream.transfers)
            t.buffer.reset();
}

const collective_transport_ops OPS = [] {
    collective_transport_ops ops = {};
    ops.begin_send = [](collective_transport *t, int stream, int peer, const void *data, size_t n, int *ret,
                        struct err *e) {
        return static_cast<GlooTransport *>(t)->begin(stream, peer, const_cast<void *>(data), n, true, ret, e);
    };
    ops.begin_recv = [](collective_transport *t, int stream, int peer, void *data, size_t n, int *ret, struct err *e) {
        return static_cast<GlooTransport *>(t)->begin(stream, peer, data, n, false, ret, e);
    };
    ops.finish = [](collective_transport *t, int stream, int handle, struct err *e) {
        return static_cast<GlooTransport *>(t)->finish(stream, handle, e);
    };
    ops.exchange = exchange_segments;
    ops.check = [](collective_transport *t, struct err *e) { return static_cast<GlooTransport *>(t)->check(e); };
    ops.abort = [](collective_transport *t, const char *reason) { static_cast<GlooTransport *>(t)->abort(reason); };
    ops.close = [](collective_transport *t) { delete static_cast<GlooTransport *>(t); };
    return ops;
}();

/* Gloo 2022-05 uses the result of a failed name look-up, so it gets a numeric address. */
status_t resolve(const char *address, std::string *ret, struct err *e) {
    addrinfo hints = {}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    int rc = getaddrinfo(address, nullptr, &hints, &found);
    if (rc != 0)
        return err_set(e, ST_NOT_FOUND, "the address '%s' of this host does not resolve: %s", address,
                       gai_strerror(rc));
    char host[NI_MAXHOST];
    rc = getnameinfo(found->ai_addr, found->ai_addrlen, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
    freeaddrinfo(found);
    if (rc != 0)
        return err_set(e, ST_NOT_FOUND, "the address '%s' cannot be read: %s", address, gai_strerror(rc));
    *ret = host;
    return ST_OK;
}

} // namespace

status_t gloo_transport_open(const struct collective_config *config, struct collective_transport **ret, struct err *e) {
    try {
        /* Gloo writes to sockets with writev(2), which raises SIGPIPE when the peer is gone. */
        struct sigaction now;
        if (sigaction(SIGPIPE, nullptr, &now) == 0 && now.sa_handler == SIG_DFL)
            signal(SIGPIPE, SIG_IGN);
        std::string host;
        TRY(resolve(config->address, &host, e));
        auto t = std::make_unique<GlooTransport>(*config);
        t->ops = &OPS;
        TRY(t->connect(*config, host, e));
        *ret = t.release();
        return ST_OK;
    } catch (const std::exception &x) {
        return err_set(e, ST_FAILED_PRECONDITION, "prepare the connections of rank %d: %s", config->rank, x.what());
    }
}
