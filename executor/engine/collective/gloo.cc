#include "executor/engine/collective/transport.h"

#include "base/clock.h"

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
/* All addresses are known when the mesh is connected: who does not answer then is not there. */
constexpr milliseconds CONNECT = std::chrono::seconds(30);
/* A byte to a peer whose receive is pending: only a connection that is stuck takes longer. */
constexpr milliseconds FAREWELL = std::chrono::seconds(2);
/* A rank that fails waits this long for the others' last words: who is told answers at once, unless it is stopped. */
constexpr milliseconds LAST_WORD = std::chrono::seconds(2);
/* At an orderly close a rank waits this long for the others to say goodbye too: they are in the same last call. */
constexpr milliseconds GOODBYE = milliseconds(500);
/* Slots are channel in the upper byte and a message's number in the rest; this one is beside all channels. */
constexpr uint64_t GOODBYE_SLOT = (uint64_t)COLLECTIVE_CHANNELS << 56;
/* What wakes a peer's watcher: there is a last word, or a goodbye. */
constexpr char WORD = 1, BYE = 0;
/* Nothing is ever sent on it: Gloo takes a receive of a connection that has not ended. */
constexpr uint64_t PROBE_SLOT = GOODBYE_SLOT + 1;

/* Gloo asks its store for one address list a rank; one exchange answers all of it. */
class ExchangeStore : public gloo::rendezvous::Store {
  public:
    explicit ExchangeStore(const collective_config &config) : config_(config), all_(config.world_size) {
        for (bytes &b : all_)
            bytes_init(&b, LIMIT_ADDRESS_BYTES);
    }
    ~ExchangeStore() override {
        for (bytes &b : all_)
            bytes_done(&b);
    }
    /* Beside the address lists Gloo stores host names under "rank_<r>", for a local rank that TCP never uses. */
    void set(const std::string &key, const std::vector<char> &data) override {
        if (is_host(key))
            return;
        status = config_.exchange(config_.exchange_ctx, data.data(), data.size(), all_.data(), &error);
        if (status != ST_OK)
            throw std::runtime_error("the exchange of addresses failed");
    }
    std::vector<char> get(const std::string &key) override {
        if (is_host(key))
            return {};
        const bytes &b = all_.at(std::stoul(key));
        return std::vector<char>(b.data, b.data + b.len);
    }
    void wait(const std::vector<std::string> &) override {}
    void wait(const std::vector<std::string> &, const milliseconds &) override {}

    status_t status = ST_OK;
    struct err error = {};

  private:
    enum { LIMIT_ADDRESS_BYTES = 256 << 10 };
    static bool is_host(const std::string &key) { return key.compare(0, 5, "rank_") == 0; }
    const collective_config &config_;
    std::vector<bytes> all_;
};

struct Transfer {
    std::unique_ptr<UnboundBuffer> buffer; /* empty = this handle is free */
    int peer;
    bool is_send;
    uint64_t slot;
};

struct Channel {
    std::deque<Transfer> transfers;       /* grows to the most that were ever under way at once; elements never move */
    std::vector<uint64_t> sent, received; /* messages so far, by peer */
    int64_t waiting_until_ms = 0;         /* 0 = its thread does not wait */
    int waiting_for = 0;
};

/* Gloo prefixes its sentences with "[file:line] ". */
const char *reason_of(const std::exception &x) {
    const char *text = x.what(), *end = *text == '[' ? strstr(text, "] ") : nullptr;
    return end ? end + 2 : text;
}

/* Runs posted transfers in the thread of Gloo's loop. Posted by their own threads they would hold a connection's lock
 * whenever something arrives on it; the loop then spins until it gets the lock, and when both share a core, that is
 * until the scheduler takes the core from it: milliseconds for each message. */
class Poster : public gloo::transport::tcp::Handler {
  public:
    Poster(std::shared_ptr<gloo::transport::Device> device, std::mutex &mutex, const bool &closing, const bool &closed)
        : device_(std::dynamic_pointer_cast<gloo::transport::tcp::Device>(device)), mutex_(mutex), closing_(closing),
          closed_(closed) {
        if (!device_ || (event_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) < 0)
            throw std::runtime_error("no eventfd for the transfers");
        device_->registerDescriptor(event_, EPOLLIN, this);
    }
    ~Poster() override {
        device_->unregisterDescriptor(event_, this); /* returns after the loop's last turn with it */
        std::lock_guard<std::mutex> lock(mutex_);
        close(event_);
    }
    /* With the mutex held. */
    void post(Transfer *t) {
        posted_.push_back(t);
        if (posted_.size() == 1)
            eventfd_write(event_, 1);
    }
    /* Closing a connection waits for a turn of the loop, which comes every 10 ms when nothing happens: something does.
     */
    void hurry() {
        hurried_ = true;
        eventfd_write(event_, 1);
    }
    void handleEvents(int) override {
        eventfd_t count;
        std::lock_guard<std::mutex> lock(mutex_);
        if (!hurried_ || closed_)
            eventfd_read(event_, &count);
        for (Transfer *t : posted_) {
            /* A connection that is being closed is locked by a thread that waits for this one. */
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
    std::shared_ptr<gloo::transport::tcp::Device> device_;
    std::mutex &mutex_;
    const bool &closing_, &closed_;
    std::atomic<bool> hurried_{ false };
    int event_ = -1;
    std::vector<Transfer *> posted_;
};

class GlooTransport : public transport {
  public:
    explicit GlooTransport(const collective_config &config)
        : rank_(config.rank), world_size_(config.world_size), timeout_(config.timeout_ms) {
        for (Channel &c : channels_) {
            c.sent.resize(world_size_);
            c.received.resize(world_size_);
        }
    }
    ~GlooTransport();

    status_t connect(const collective_config &config, const std::string &host, struct err *e);
    status_t begin(int channel, int peer, void *data, size_t n, bool is_send, int *ret, struct err *e);
    status_t finish(int channel, int handle, struct err *e);
    status_t check(struct err *e);
    void abort(const char *reason);

  private:
    void watch();
    void keep_deadlines();
    void say_goodbye();
    void say_why(const struct err &word, std::vector<std::unique_ptr<UnboundBuffer>> *sent);
    void hear_out();
    status_t word_of(int peer, struct err *e);
    status_t blame(int fallback, const std::string &reason, struct err *e);
    void fail(status_t status, const struct err &error);
    status_t failed(struct err *e);

    const int rank_, world_size_;
    const milliseconds timeout_;
    std::shared_ptr<gloo::transport::Device> device_;
    std::shared_ptr<gloo::rendezvous::Context> context_;

    std::mutex mutex_; /* of everything below, up to the threads */
    std::condition_variable changed_;
    std::array<Channel, COLLECTIVE_CHANNELS> channels_;
    bool closing_ = false;    /* no transfer is posted any more */
    status_t status_ = ST_OK; /* the first failure, kept */
    struct err error_ = {};
    bool closed_ = false; /* after the failure: no thread of Gloo touches a caller's memory any more */
    bool done_ = false;
    bool leaving_ = false; /* goodbye is said: no other last word */
    int goodbyes_ = 0;

    /* A receive from every peer is always pending here, so that the end of a connection is known at once, whatever the
     * other threads wait for: Gloo tells only the operations of that connection that have not begun. */
    std::vector<char> goodbye_bytes_;
    std::vector<struct err> last_words_;                   /* by peer: why it failed; empty where it said goodbye */
    std::vector<char> heard_;                              /* by peer: its farewell was awaited */
    bool heard_out_ = false;                               /* nobody is left to be heard */
    std::vector<std::unique_ptr<UnboundBuffer>> farewell_; /* by peer: they arrive here; or whose connection it was */
    std::unique_ptr<UnboundBuffer> watch_, probe_;
    std::mutex blaming_; /* of farewells and the probe */
    std::unique_ptr<Poster> poster_;
    std::thread watcher_, deadlines_;
};

status_t GlooTransport::connect(const collective_config &config, const std::string &host, struct err *e) {
    ExchangeStore store(config);
    try {
        gloo::transport::tcp::attr attr;
        attr.hostname = host;
        device_ = gloo::transport::tcp::CreateDevice(attr);
        context_ = std::make_shared<gloo::rendezvous::Context>(rank_, world_size_);
        context_->setTimeout(std::min(timeout_, CONNECT));
        context_->connectFullMesh(store, device_);

        goodbye_bytes_.resize(world_size_ + 1);
        last_words_.resize(world_size_);
        heard_.resize(world_size_);
        watch_ = context_->createUnboundBuffer(goodbye_bytes_.data(), world_size_);
        probe_ = context_->createUnboundBuffer(&goodbye_bytes_[world_size_], 1);
        farewell_.resize(world_size_);
        for (int peer = 0; peer < world_size_; peer++) {
            if (peer == rank_)
                continue;
            /* This order: when a connection ends, its farewell knows it before the watcher wakes. */
            farewell_[peer] = context_->createUnboundBuffer(last_words_[peer].msg, sizeof last_words_[peer].msg);
            farewell_[peer]->recv(peer, GOODBYE_SLOT);
            watch_->recv(peer, GOODBYE_SLOT, peer, 1);
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

/* Ends with an error, a last word, the last goodbye, or when the transport is destroyed. */
void GlooTransport::watch() {
    try {
        int peer;
        while (watch_->waitRecv(&peer, FOREVER)) {
            if (goodbye_bytes_[peer] == WORD) {
                struct err error;
                fail(word_of(peer, &error), error);
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
        fail(blame(-1, reason_of(x), &error), error);
    }
}

/* It has arrived: its waker came behind it. */
status_t GlooTransport::word_of(int peer, struct err *e) {
    std::lock_guard<std::mutex> lock(blaming_);
    if (!heard_[peer])
        farewell_[peer]->waitRecv(FOREVER);
    heard_[peer] = true;
    return err_set(e, ST_UNAVAILABLE, "%s", last_words_[peer].msg);
}

/* Whose end was the first? Who fails says why, and closes when all others have said why too: a rank whose connection
 * ends without a word was killed, or is taken for it by who had stood still for LAST_WORD. What is said counts more.
 * fallback: who it is when nothing tells. Of a connection that has ended the farewell throws, but where it has brought
 * a last word; then a new receive does. An aborted wait on the others returns at once. */
status_t GlooTransport::blame(int fallback, const std::string &reason, struct err *e) {
    std::lock_guard<std::mutex> lock(blaming_);
    int silent = fallback;
    std::string its = reason;
    for (int peer = 0; peer < world_size_; peer++) {
        if (peer == rank_)
            continue;
        try {
            farewell_[peer]->abortWaitRecv();
            farewell_[peer]->waitRecv(FOREVER);
        } catch (const std::exception &x) {
            silent = peer;
            its = reason_of(x);
            continue;
        }
        try {
            probe_->recv(peer, PROBE_SLOT);
        } catch (const std::exception &) {
            if (*last_words_[peer].msg)
                return err_set(e, ST_UNAVAILABLE, "%s", last_words_[peer].msg);
        }
    }
    return err_set(e, ST_UNAVAILABLE, "rank %d went away: %s", silent, its.c_str());
}

/* Gloo's own time-outs close all connections behind our back, so nothing waits in Gloo with one. */
void GlooTransport::keep_deadlines() {
    const milliseconds tick = std::min(milliseconds(100), timeout_ / 8 + milliseconds(1));
    std::unique_lock<std::mutex> lock(mutex_);
    while (!done_ && status_ == ST_OK) {
        changed_.wait_for(lock, tick, [this] { return done_ || status_ != ST_OK; });
        int64_t now = clock_mono_ms();
        for (Channel &c : channels_) {
            if (!c.waiting_until_ms || now < c.waiting_until_ms || status_ != ST_OK)
                continue;
            struct err error;
            status_t status = err_set(&error, ST_DEADLINE_EXCEEDED, "rank %d did nothing for %lld ms", c.waiting_for,
                                      (long long)timeout_.count());
            lock.unlock();
            fail(status, error);
            return;
        }
    }
}

/* The first failure wins. Tells the peers, closes all connections, so that they fail too, and wakes this rank's other
 * threads. */
void GlooTransport::fail(status_t status, const struct err &error) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (status_ != ST_OK)
        return;
    const bool speaks = !leaving_;
    closing_ = true;
    status_ = status;
    error_ = error;
    for (Channel &channel : channels_)
        for (Transfer &t : channel.transfers)
            if (t.buffer) {
                t.buffer->abortWaitRecv();
                t.buffer->abortWaitSend();
            }
    watch_->abortWaitRecv();
    changed_.notify_all();
    lock.unlock();
    struct err word;
    std::vector<std::unique_ptr<UnboundBuffer>> sent; /* these last until the connections are closed */
    if (speaks) {
        status_ignore(status == ST_UNAVAILABLE ? err_set(&word, status, "%s", error.msg)
                                               : err_set(&word, status, "rank %d went away: %s", rank_, error.msg));
        say_why(word, &sent);
        hear_out();
    }
    poster_->hurry();
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

status_t GlooTransport::begin(int channel, int peer, void *data, size_t n, bool is_send, int *ret, struct err *e) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (closing_) {
        lock.unlock();
        return failed(e);
    }
    Channel &c = channels_[channel];
    size_t handle = 0;
    while (handle < c.transfers.size() && c.transfers[handle].buffer)
        handle++;
    if (handle == c.transfers.size())
        c.transfers.emplace_back();
    uint64_t slot = (uint64_t)channel << 56 | (is_send ? c.sent : c.received)[peer]++;
    c.transfers[handle] = { context_->createUnboundBuffer(data, n), peer, is_send, slot };
    poster_->post(&c.transfers[handle]);
    *ret = (int)handle;
    return ST_OK;
}

status_t GlooTransport::finish(int channel, int handle, struct err *e) {
    Channel &c = channels_[channel];
    Transfer &t = c.transfers[(size_t)handle];
    {
        std::lock_guard<std::mutex> lock(mutex_);
        c.waiting_for = t.peer;
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
            fail(blame(t.peer, reason, &error), error);
        return failed(e);
    }
    std::lock_guard<std::mutex> lock(mutex_);
    c.waiting_until_ms = 0;
    t.buffer.reset();
    return ST_OK;
}

/* To each peer's farewell, and then its watcher. Who was lost is passed on as it was heard. */
void GlooTransport::say_why(const struct err &word, std::vector<std::unique_ptr<UnboundBuffer>> *sent) {
    static char waker = WORD;
    for (int peer = 0; peer < world_size_; peer++)
        try {
            if (peer == rank_)
                continue;
            sent->push_back(context_->createUnboundBuffer(const_cast<char *>(word.msg), strlen(word.msg) + 1));
            sent->back()->send(peer, GOODBYE_SLOT);
            sent->push_back(context_->createUnboundBuffer(&waker, 1));
            sent->back()->send(peer, GOODBYE_SLOT);
        } catch (const std::exception &) {
            /* That one is no more. */
        }
}

/* Until each peer has spoken or is no more: from then on nobody asks whose end was the first, and what is closed here
 * is taken for no death. */
void GlooTransport::hear_out() try {
    std::lock_guard<std::mutex> blaming(blaming_);
    std::thread most([this] {
        std::unique_lock<std::mutex> lock(mutex_);
        if (changed_.wait_for(lock, LAST_WORD, [this] { return heard_out_; }))
            return;
        for (auto &farewell : farewell_)
            if (farewell)
                farewell->abortWaitRecv();
    });
    for (int peer = 0; peer < world_size_; peer++)
        try {
            if (peer != rank_ && !heard_[peer])
                farewell_[peer]->waitRecv(FOREVER);
        } catch (const std::exception &) {
            /* That one is no more. */
        }
    {
        std::lock_guard<std::mutex> lock(mutex_);
        heard_out_ = true;
        changed_.notify_all();
    }
    most.join();
} catch (const std::system_error &) {
    /* No thread to end the wait: nobody is waited for. */
}

/* Peers may still be in their last call with each other: without a word, the end of this rank's connections would look
 * like its death. One byte for the peer's farewell and one for its watcher. */
void GlooTransport::say_goodbye() {
    char byte = BYE;
    std::vector<std::unique_ptr<UnboundBuffer>> sent;
    for (int peer = 0; peer < world_size_; peer++)
        for (int i = 0; i < 2 && peer != rank_; i++) {
            sent.push_back(context_->createUnboundBuffer(&byte, 1));
            sent.back()->send(peer, GOODBYE_SLOT);
        }
    for (auto &buffer : sent)
        buffer->waitSend(FAREWELL);
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait_for(lock, GOODBYE, [this] { return goodbyes_ == world_size_ - 1 || status_ != ST_OK; });
}

GlooTransport::~GlooTransport() {
    if (watcher_.joinable()) {
        std::unique_lock<std::mutex> lock(mutex_);
        leaving_ = status_ == ST_OK && !closing_ && deadlines_.joinable();
        lock.unlock();
        try {
            if (leaving_)
                say_goodbye();
        } catch (const std::exception &) {
            /* A peer was faster or is gone: nothing is left to say to it. */
        }
        watch_->abortWaitRecv();
        watcher_.join();
        lock.lock();
        closing_ = done_ = true;
        changed_.notify_all();
        lock.unlock();
        if (deadlines_.joinable()) /* else the system refused it, and nothing was opened */
            deadlines_.join();
    }
    poster_.reset();
    /* Connections end before the buffers that their operations point to. */
    context_.reset();
    for (Channel &channel : channels_)
        for (Transfer &t : channel.transfers)
            t.buffer.reset();
}

const transport_ops OPS = [] {
    transport_ops ops = {};
    ops.begin_send = [](transport *t, int channel, int peer, const void *data, size_t n, int *ret, struct err *e) {
        return static_cast<GlooTransport *>(t)->begin(channel, peer, const_cast<void *>(data), n, true, ret, e);
    };
    ops.begin_recv = [](transport *t, int channel, int peer, void *data, size_t n, int *ret, struct err *e) {
        return static_cast<GlooTransport *>(t)->begin(channel, peer, data, n, false, ret, e);
    };
    ops.finish = [](transport *t, int channel, int handle, struct err *e) {
        return static_cast<GlooTransport *>(t)->finish(channel, handle, e);
    };
    ops.check = [](transport *t, struct err *e) { return static_cast<GlooTransport *>(t)->check(e); };
    ops.abort = [](transport *t, const char *reason) { static_cast<GlooTransport *>(t)->abort(reason); };
    ops.close = [](transport *t) { delete static_cast<GlooTransport *>(t); };
    return ops;
}();

/* Gloo 2022-05 takes a failed name look-up for an answer, so it gets an address that has been looked up. */
status_t resolve(const char *address, std::string *ret, struct err *e) {
    addrinfo hints = {}, *found = nullptr;
    hints.ai_socktype = SOCK_STREAM;
    int rc = getaddrinfo(address, nullptr, &hints, &found);
    if (rc != 0)
        return err_set(e, ST_INVALID_ARGUMENT, "the address '%s' of this host does not resolve: %s", address,
                       gai_strerror(rc));
    char host[NI_MAXHOST];
    rc = getnameinfo(found->ai_addr, found->ai_addrlen, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
    freeaddrinfo(found);
    if (rc != 0)
        return err_set(e, ST_INVALID_ARGUMENT, "the address '%s' cannot be read: %s", address, gai_strerror(rc));
    *ret = host;
    return ST_OK;
}

} // namespace

status_t transport_open_gloo(const struct collective_config *config, struct transport **ret, struct err *e) {
    try {
        /* Gloo writes to sockets by writev(2), which raises SIGPIPE when the peer has gone. */
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
        return err_set(e, ST_RESOURCE_EXHAUSTED, "prepare the connections of rank %d: %s", config->rank, x.what());
    }
}
