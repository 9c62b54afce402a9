#include "tests/support/tls/tls_client.h"

#include <array>
#include <csignal>
#include <cstdlib>
#include <stdexcept>
#include <utility>

#include <netinet/in.h>
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

namespace test_tls {
namespace {

constexpr timeval kPatience{.tv_sec = 20, .tv_usec = 0};

int connect_to(std::uint16_t port) {
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &kPatience, sizeof kPatience);
    ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &kPatience, sizeof kPatience);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
        throw std::runtime_error("cannot connect to the server");
    }
    return fd;
}

}  // namespace

TlsClient::TlsClient(std::uint16_t port, const TestCa& ca, const ClientWishes& wishes)
    : fd_(connect_to(port)), context_(::SSL_CTX_new(::TLS_client_method())) {
    std::signal(SIGPIPE, SIG_IGN);  // OpenSSL writes to the socket as to a file
    ::X509_STORE_add_cert(::SSL_CTX_get_cert_store(context_), ca.certificate());
    ::SSL_CTX_set_verify(context_, SSL_VERIFY_PEER, nullptr);
    ::SSL_CTX_set_min_proto_version(context_, TLS1_VERSION);
    ::SSL_CTX_set_security_level(context_, 0);  // so that old versions are really offered
    if (wishes.version_max != 0) ::SSL_CTX_set_max_proto_version(context_, wishes.version_max);
    session_ = ::SSL_new(context_);
    ::SSL_set1_host(session_, "localhost");
    if (!wishes.protocol.empty()) {
        const std::string offer = static_cast<char>(wishes.protocol.size()) + wishes.protocol;
        ::SSL_set_alpn_protos(session_, reinterpret_cast<const unsigned char*>(offer.data()),
                              static_cast<unsigned int>(offer.size()));
    }
    ::SSL_set_fd(session_, fd_);
    ::ERR_clear_error();
    if (::SSL_connect(session_) != 1) {
        const unsigned long code = ::ERR_get_error();
        const char* reason = code == 0 ? nullptr : ::ERR_reason_error_string(code);
        failure_ = reason == nullptr ? "the server closed" : reason;
    }
}

TlsClient::~TlsClient() {
    ::SSL_free(session_);
    ::SSL_CTX_free(context_);
    if (fd_ >= 0) ::close(fd_);
}

std::string TlsClient::protocol() const {
    const unsigned char* name = nullptr;
    unsigned int size = 0;
    ::SSL_get0_alpn_selected(session_, &name, &size);
    return {reinterpret_cast<const char*>(name), size};
}

std::string TlsClient::server_name() const {
    const X509* certificate = ::SSL_get0_peer_certificate(session_);
    std::array<char, 128> name{};
    if (certificate != nullptr) {
        ::X509_NAME_get_text_by_NID(::X509_get_subject_name(certificate), NID_commonName,
                                    name.data(), static_cast<int>(name.size()));
    }
    return name.data();
}

void TlsClient::send(std::string_view bytes) {
    for (std::size_t at = 0; at < bytes.size();) {
        std::size_t sent = 0;
        if (::SSL_write_ex(session_, bytes.data() + at, bytes.size() - at, &sent) != 1) return;
        at += sent;
    }
}

bool TlsClient::read_more() {
    std::array<char, 16384> buffer;
    std::size_t got = 0;
    const int result = ::SSL_read_ex(session_, buffer.data(), buffer.size(), &got);
    if (result == 1) {
        ahead_.append(buffer.data(), got);
        return true;
    }
    was_ended_properly_ = ::SSL_get_error(session_, result) == SSL_ERROR_ZERO_RETURN;
    ::ERR_clear_error();
    return false;
}

std::string TlsClient::read_until(std::string_view mark) {
    while (ahead_.find(mark) == std::string::npos) {
        if (!read_more()) return std::exchange(ahead_, {});
    }
    const std::size_t end = ahead_.find(mark) + mark.size();
    std::string text = ahead_.substr(0, end);
    ahead_.erase(0, end);
    return text;
}

std::string TlsClient::read_to_end() {
    while (read_more()) {
    }
    return std::exchange(ahead_, {});
}

std::string TlsClient::read_answer() {
    std::string text = read_until("\r\n\r\n");
    const std::size_t at = text.find("Content-Length: ");
    if (at == std::string::npos) return text;
    const std::size_t size = std::strtoul(text.c_str() + at + 16, nullptr, 10);
    while (ahead_.size() < size && read_more()) {
    }
    text += ahead_.substr(0, size);
    ahead_.erase(0, size);
    return text;
}

void TlsClient::update_keys() {
    ::SSL_key_update(session_, SSL_KEY_UPDATE_REQUESTED);
    ::SSL_do_handshake(session_);
}

void TlsClient::send_close_notify() {
    ::SSL_shutdown(session_);
}

void TlsClient::shutdown_send() const {
    ::shutdown(fd_, SHUT_WR);
}

void TlsClient::reset() {
    const linger now{.l_onoff = 1, .l_linger = 0};
    ::setsockopt(fd_, SOL_SOCKET, SO_LINGER, &now, sizeof now);
    ::close(std::exchange(fd_, -1));
}

}  // namespace test_tls
