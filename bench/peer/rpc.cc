// The echo service of tests/rpc/echo.proto on gRPC's own C++ API (callback servers), as the peer of api/rpc.
#include "echo.grpc.pb.h"

#include <csignal>
#include <cstdio>
#include <grpcpp/grpcpp.h>
#include <thread>

class Echo final : public test::v1::Echo::CallbackService {
    grpc::ServerUnaryReactor *Unary(grpc::CallbackServerContext *context, const test::v1::EchoRequest *in,
                                    test::v1::EchoReply *reply) override {
        reply->set_text(in->text());
        reply->set_number(in->number());
        reply->set_blob(in->blob());
        auto *reactor = context->DefaultReactor();
        reactor->Finish(grpc::Status::OK);
        return reactor;
    }

    class Counter final : public grpc::ServerWriteReactor<test::v1::EchoReply> {
        const int64_t n_;
        test::v1::EchoReply reply_;
        int64_t i_ = 0;

        void next() {
            if (i_ == n_) {
                Finish(grpc::Status::OK);
                return;
            }
            reply_.set_number(i_++);
            StartWrite(&reply_);
        }

      public:
        explicit Counter(const test::v1::CountRequest &in) : n_(in.n()) {
            reply_.mutable_blob()->resize(in.bytes());
            next();
        }
        void OnWriteDone(bool ok) override {
            if (ok)
                next();
            else
                Finish(grpc::Status::CANCELLED);
        }
        void OnDone() override { delete this; }
    };

    grpc::ServerWriteReactor<test::v1::EchoReply> *Count(grpc::CallbackServerContext *,
                                                         const test::v1::CountRequest *in) override {
        return new Counter(*in);
    }
};

int main(int argc, char **argv) {
    if (argc != 2)
        return 2;
    Echo echo;
    grpc::ServerBuilder builder;
    int port = 0;
    builder.AddListeningPort(argv[1], grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(&echo);
    auto server = builder.BuildAndStart();
    if (!server)
        return 1;
    std::string address = argv[1];
    if (address.rfind("unix:", 0) != 0)
        address = address.substr(0, address.rfind(':') + 1) + std::to_string(port);
    std::printf("ready %s\n", address.c_str());
    std::fflush(stdout);
    server->Wait();
}
