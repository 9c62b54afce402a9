// tls: the server's side of TLS over a socket that never blocks. OpenSSL stays inside tls.cpp.
//
//   files ─▶ TlsContext::load ─▶ HttpServer::set_tls ─▶ one TlsSession for each connection
//
// A context never changes: a reload loads another one, and connections that began with the old one
// end with it. TLS 1.2 and 1.3, no renegotiation, no compression, no client certificates; of the
// protocols a client offers (ALPN) only http/1.1 is taken.
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include <tl/expected.hpp>

struct ssl_ctx_st;
struct ssl_st;

namespace proto {

class TlsContext {
public:
    /// `certificate`: PEM file, the server's own first, then what leads to its issuer. `key`: its
    /// PEM key, without a passphrase. The error is a sentence that names the file.
    [[nodiscard]] static tl::expected<std::shared_ptr<const TlsContext>, std::string> load(
        const std::string& certificate, const std::string& key);
    ~TlsContext();
    TlsContext(const TlsContext&) = delete;
    TlsContext& operator=(const TlsContext&) = delete;

    [[nodiscard]] std::chrono::system_clock::time_point ends_at() const { return ends_at_; }
    /// Whole days from `now` until the certificate ends; negative when it has ended.
    [[nodiscard]] int days_left(std::chrono::system_clock::time_point now) const {
        return static_cast<int>(std::chrono::floor<std::chrono::days>(ends_at_ - now).count());
    }

private:
    friend class TlsSession;
    explicit TlsContext(ssl_ctx_st* context) : context_(context) {}

    ssl_ctx_st* context_;
    std::chrono::system_clock::time_point ends_at_;
};

/// One connection. Never waits: an operation that cannot go on says what the socket must become.
class TlsSession {
public:
    enum class Status {
        kDone,
        kWantRead,   // again when the socket is readable
        kWantWrite,  // again, with the same bytes, when it is writable
        kEnded,      // the peer has said that it sends no more
        kPlainHttp,  // what arrived is HTTP without TLS; nothing was answered yet
        kFailed,     // reset, no TLS, nothing in common, or a broken record
    };
    struct Transfer {
        Status status = Status::kDone;
        std::size_t bytes = 0;  // with kDone, at least 1
    };

    /// `fd` stays the caller's and outlives the session.
    TlsSession(std::shared_ptr<const TlsContext> context, int fd);
    ~TlsSession();
    TlsSession(const TlsSession&) = delete;
    TlsSession& operator=(const TlsSession&) = delete;

    [[nodiscard]] Status handshake();
    [[nodiscard]] Transfer read(char* bytes, std::size_t size);
    [[nodiscard]] Transfer write(std::string_view bytes);
    /// Says that no more is sent (close_notify), if that can be said at once. Idempotent.
    void end();

private:
    [[nodiscard]] Status status_of(int result);

    std::shared_ptr<const TlsContext> context_;
    ssl_st* session_;
    bool is_broken_ = false;  // after a fatal error nothing more may be sent
    bool is_established_ = false, has_ended_ = false;
};

}  // namespace proto
