// A client that speaks TLS with OpenSSL over a blocking socket: exact bytes in and out, the ways to
// leave one by one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <openssl/ssl.h>

#include "tests/support/tls/test_ca.h"

namespace test_tls {

struct ClientWishes {
    int version_max = 0;   // TLS1_2_VERSION …; 0: the newest
    std::string protocol;  // offered by ALPN; empty: none
};

class TlsClient {
public:
    /// Connects to 127.0.0.1:`port` and shakes hands; the server must prove itself to `ca`.
    TlsClient(std::uint16_t port, const TestCa& ca, const ClientWishes& wishes = {});
    ~TlsClient();
    TlsClient(const TlsClient&) = delete;
    TlsClient& operator=(const TlsClient&) = delete;

    /// Empty when the session stands; else why not.
    [[nodiscard]] const std::string& failure() const { return failure_; }
    [[nodiscard]] std::string version() const { return ::SSL_get_version(session_); }
    [[nodiscard]] std::string protocol() const;
    /// Common name of the server's certificate.
    [[nodiscard]] std::string server_name() const;

    /// All of it; a server that has closed is no error.
    void send(std::string_view bytes);
    /// Everything until `mark` has arrived, `mark` included, or the server ends.
    std::string read_until(std::string_view mark);
    /// Everything until the server ends.
    std::string read_to_end();
    /// One answer with Content-Length: head and body.
    std::string read_answer();
    /// The server said that it sends no more, before its end of the connection.
    [[nodiscard]] bool was_ended_properly() const { return was_ended_properly_; }

    /// Asks for other keys in the middle of it all (TLS 1.3).
    void update_keys();
    void send_close_notify();
    /// FIN under the session, with or without close_notify before.
    void shutdown_send() const;
    void reset();

private:
    bool read_more();

    int fd_;
    SSL_CTX* context_;
    SSL* session_;
    std::string failure_;
    std::string ahead_;
    bool was_ended_properly_ = false;
};

}  // namespace test_tls
