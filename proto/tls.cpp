#include "proto/tls.h"

#include <cassert>
#include <cerrno>
#include <ctime>
#include <limits>
#include <memory>
#include <new>
#include <utility>

#include <openssl/bio.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include "proto/regular_file.h"

namespace proto {
namespace {

/// The first reason OpenSSL gives, or `fallback`; empties its queue.
std::string reason_of_error(const char* fallback) {
    const unsigned long code = ::ERR_get_error();
    ::ERR_clear_error();
    const char* reason = code == 0 ? nullptr : ::ERR_reason_error_string(code);
    return reason == nullptr ? fallback : reason;
}

/// Nobody sits at a server's terminal to be asked.
int no_passphrase(char*, int, int, void*) {
    return 0;
}

int choose_protocol(SSL*, const unsigned char** out, unsigned char* out_size,
                    const unsigned char* offered, unsigned int offered_size, void*) {
    // OpenSSL keeps a pointer into it.
    static constexpr unsigned char kHttp11[] = "\x08http/1.1";
    unsigned char* chosen = nullptr;
    if (::SSL_select_next_proto(&chosen, out_size, kHttp11, sizeof kHttp11 - 1, offered,
                                offered_size) != OPENSSL_NPN_NEGOTIATED) {
        return SSL_TLSEXT_ERR_ALERT_FATAL;
    }
    *out = chosen;
    return SSL_TLSEXT_ERR_OK;
}

// --- Bytes between OpenSSL and the socket. Its own socket BIO writes without MSG_NOSIGNAL, so a
// client that has left would end a process that does not ignore SIGPIPE.

int fd_of(BIO* bio) {
    return static_cast<int>(reinterpret_cast<std::intptr_t>(::BIO_get_data(bio)));
}

bool is_passing(int error) {
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR;
}

int bio_write(BIO* bio, const char* bytes, std::size_t size, std::size_t* written) {
    ::BIO_clear_retry_flags(bio);
    const ssize_t count = ::send(fd_of(bio), bytes, size, MSG_NOSIGNAL);
    if (count < 0) {
        if (is_passing(errno)) ::BIO_set_retry_write(bio);
        return 0;
    }
    *written = static_cast<std::size_t>(count);
    return 1;
}

int bio_read(BIO* bio, char* bytes, std::size_t size, std::size_t* got) {
    ::BIO_clear_retry_flags(bio);
    const ssize_t count = ::recv(fd_of(bio), bytes, size, 0);
    if (count <= 0) {
        if (count < 0 && is_passing(errno)) ::BIO_set_retry_read(bio);
        if (count == 0) ::BIO_set_flags(bio, BIO_FLAGS_IN_EOF);
        return 0;
    }
    *got = static_cast<std::size_t>(count);
    return 1;
}

long bio_control(BIO* bio, int command, long, void*) {
    if (command == BIO_CTRL_EOF) return ::BIO_test_flags(bio, BIO_FLAGS_IN_EOF) != 0 ? 1 : 0;
    return command == BIO_CTRL_FLUSH ? 1 : 0;
}

int bio_create(BIO* bio) {
    ::BIO_set_init(bio, 1);
    return 1;
}

BIO* make_bio(int fd) {
    static const BIO_METHOD* const method = [] {
        BIO_METHOD* made = ::BIO_meth_new(::BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "fd");
        ::BIO_meth_set_write_ex(made, bio_write);
        ::BIO_meth_set_read_ex(made, bio_read);
        ::BIO_meth_set_ctrl(made, bio_control);
        ::BIO_meth_set_create(made, bio_create);
        return made;  // for the life of the process
    }();
    BIO* bio = ::BIO_new(method);
    if (bio == nullptr) throw std::bad_alloc();
    ::BIO_set_data(bio, reinterpret_cast<void*>(static_cast<std::intptr_t>(fd)));
    return bio;
}

// --- PEM texts. OpenSSL would open the files by itself, and wait for a pipe that nobody writes.

constexpr std::size_t kPemBytesMax = std::size_t{1} << 20;

struct BioDeleter {
    void operator()(BIO* bio) const { ::BIO_free(bio); }
};
using BioOwner = std::unique_ptr<BIO, BioDeleter>;

BioOwner bio_of(const std::string& text) {
    return BioOwner(::BIO_new_mem_buf(text.data(), static_cast<int>(text.size())));
}

/// The server's own certificate first, then those that lead to its root.
bool use_chain(SSL_CTX* context, const std::string& text) {
    const BioOwner bio = bio_of(text);
    if (!bio) return false;
    X509* own = ::PEM_read_bio_X509_AUX(bio.get(), nullptr, no_passphrase, nullptr);
    if (own == nullptr) return false;
    const bool is_used = ::SSL_CTX_use_certificate(context, own) == 1;
    ::X509_free(own);
    if (!is_used) return false;
    ::SSL_CTX_clear_chain_certs(context);
    while (X509* next = ::PEM_read_bio_X509(bio.get(), nullptr, no_passphrase, nullptr)) {
        if (::SSL_CTX_add0_chain_cert(context, next) != 1) {  // takes it over
            ::X509_free(next);
            return false;
        }
    }
    const unsigned long code = ::ERR_peek_last_error();
    const bool is_end =
        ::ERR_GET_LIB(code) == ERR_LIB_PEM && ::ERR_GET_REASON(code) == PEM_R_NO_START_LINE;
    if (is_end) ::ERR_clear_error();
    return is_end;
}

enum class KeyUse { kUsed, kUnreadable, kOfAnother };

KeyUse use_key(SSL_CTX* context, const std::string& text) {
    const BioOwner bio = bio_of(text);
    if (!bio) return KeyUse::kUnreadable;
    EVP_PKEY* key = ::PEM_read_bio_PrivateKey(bio.get(), nullptr, no_passphrase, nullptr);
    if (key == nullptr) return KeyUse::kUnreadable;
    const bool is_used = ::SSL_CTX_use_PrivateKey(context, key) == 1;
    ::EVP_PKEY_free(key);
    // A key of another kind than the certificate's is taken at first.
    const bool is_pair = is_used && ::SSL_CTX_check_private_key(context) == 1;
    return is_pair ? KeyUse::kUsed : KeyUse::kOfAnother;
}

bool has(const std::string& text, std::string_view part) {
    return text.find(part) != std::string::npos;
}

/// Why no certificate could be taken from `text`, and what to do. OpenSSL's own reason is for what
/// has none of the usual causes.
std::string certificate_fault(const std::string& text) {
    const std::string reason = reason_of_error("no reason given");
    if (!has(text, "-----BEGIN CERTIFICATE-----") &&
        !has(text, "-----BEGIN TRUSTED CERTIFICATE-----")) {
        return std::string("there is no certificate in it") +
               (has(text, "PRIVATE KEY-----") ? " but a private key: the two files may be swapped"
                                              : "; wanted is a PEM file that begins with "
                                                "-----BEGIN CERTIFICATE-----");
    }
    return "a certificate in it is damaged (" + reason + "); copy the file from its issuer again";
}

std::string key_fault(const std::string& text) {
    const std::string reason = reason_of_error("no reason given");
    if (!has(text, "PRIVATE KEY-----")) {
        return std::string("there is no private key in it") +
               (has(text, "CERTIFICATE-----") ? " but a certificate: the two files may be swapped"
                                              : "; wanted is a PEM file with a line "
                                                "-----BEGIN PRIVATE KEY-----");
    }
    if (has(text, "ENCRYPTED")) {
        return "it has a passphrase, which nobody is there to type; write it without one: "
               "openssl pkey -in OLD -out NEW";
    }
    return "the key in it is damaged (" + reason + "); copy the file again";
}

}  // namespace

tl::expected<std::shared_ptr<const TlsContext>, std::string> TlsContext::load(
    const std::string& certificate, const std::string& key) {
    using Error = tl::unexpected<std::string>;
    ::ERR_clear_error();
    SSL_CTX* raw = ::SSL_CTX_new(::TLS_server_method());
    if (raw == nullptr) return Error("TLS is not available: " + reason_of_error("no reason given"));
    const std::shared_ptr<TlsContext> context(new TlsContext(raw));
    ::SSL_CTX_set_min_proto_version(raw, TLS1_2_VERSION);
    ::SSL_CTX_set_options(raw, SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION |
                                   SSL_OP_CIPHER_SERVER_PREFERENCE | SSL_OP_PRIORITIZE_CHACHA);
    // A record that could be sent in part only is completed by the next write, from wherever its
    // bytes are by then. Idle connections keep no buffers.
    ::SSL_CTX_set_mode(raw, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                SSL_MODE_RELEASE_BUFFERS);
    ::SSL_CTX_set_alpn_select_cb(raw, choose_protocol, nullptr);
    ::SSL_CTX_set_default_passwd_cb(raw, no_passphrase);
    const auto chain_text = read_regular_file(certificate, kPemBytesMax);
    if (!chain_text || !use_chain(raw, *chain_text)) {
        const std::string why = chain_text ? certificate_fault(*chain_text) : chain_text.error();
        return Error("the certificate '" + certificate + "' cannot be used: " + why);
    }
    auto key_text = read_regular_file(key, kPemBytesMax);
    const KeyUse use = key_text ? use_key(raw, *key_text) : KeyUse::kUnreadable;
    const std::string why =
        key_text && use == KeyUse::kUnreadable ? key_fault(*key_text) : std::string();
    if (key_text) ::OPENSSL_cleanse(key_text->data(), key_text->size());
    if (use == KeyUse::kUnreadable) {
        return Error("the TLS key '" + key +
                     "' cannot be used: " + (key_text ? why : key_text.error()));
    }
    ::ERR_clear_error();
    if (use == KeyUse::kOfAnother) {
        return Error("the TLS key '" + key + "' does not belong to the certificate '" +
                     certificate +
                     "', which was made for another key; give the pair that was made together");
    }
    int days = 0;
    int rest_s = 0;
    const X509* own = ::SSL_CTX_get0_certificate(raw);
    if (::ASN1_TIME_diff(&days, &rest_s, nullptr, ::X509_get0_notAfter(own)) == 1) {
        context->ends_at_ = std::chrono::floor<std::chrono::seconds>(
            std::chrono::system_clock::now() + std::chrono::days(days) +
            std::chrono::seconds(rest_s));
    }
    return std::shared_ptr<const TlsContext>(context);
}

TlsContext::~TlsContext() {
    ::SSL_CTX_free(context_);
}

TlsSession::TlsSession(std::shared_ptr<const TlsContext> context, int fd)
    : context_(std::move(context)), session_(::SSL_new(context_->context_)) {
    if (session_ == nullptr) throw std::bad_alloc();
    BIO* bio = make_bio(fd);
    ::SSL_set_bio(session_, bio, bio);
    ::SSL_set_accept_state(session_);
}

TlsSession::~TlsSession() {
    ::SSL_free(session_);
}

TlsSession::Status TlsSession::status_of(int result) {
    switch (::SSL_get_error(session_, result)) {
        case SSL_ERROR_NONE:
            return Status::kDone;
        case SSL_ERROR_WANT_READ:
            return Status::kWantRead;
        case SSL_ERROR_WANT_WRITE:
            return Status::kWantWrite;
        case SSL_ERROR_ZERO_RETURN:
            return Status::kEnded;
        default:
            break;
    }
    is_broken_ = true;
    const unsigned long code = ::ERR_peek_error();
    ::ERR_clear_error();
    const bool is_http = !is_established_ && ::ERR_GET_LIB(code) == ERR_LIB_SSL &&
                         ::ERR_GET_REASON(code) == SSL_R_HTTP_REQUEST;
    return is_http ? Status::kPlainHttp : Status::kFailed;
}

TlsSession::Status TlsSession::handshake() {
    ::ERR_clear_error();  // SSL_get_error also looks at what others have left there
    const Status status = status_of(::SSL_do_handshake(session_));
    if (status == Status::kDone) is_established_ = true;
    return status;
}

TlsSession::Transfer TlsSession::read(char* bytes, std::size_t size) {
    assert(size > 0 && "a read of nothing looks like the end");
    if (is_broken_) return {Status::kFailed, 0};
    ::ERR_clear_error();
    std::size_t count = 0;
    const int result = ::SSL_read_ex(session_, bytes, size, &count);
    return {status_of(result), count};
}

TlsSession::Transfer TlsSession::write(std::string_view bytes) {
    assert(!bytes.empty() && "OpenSSL knows no record without bytes");
    if (is_broken_ || has_ended_) return {Status::kFailed, 0};
    ::ERR_clear_error();
    std::size_t count = 0;
    const int result = ::SSL_write_ex(session_, bytes.data(), bytes.size(), &count);
    return {status_of(result), count};
}

void TlsSession::end() {
    if (is_broken_ || has_ended_ || !is_established_) return;
    has_ended_ = true;
    ::ERR_clear_error();
    static_cast<void>(::SSL_shutdown(session_));  // 0: sent, the peer's own is not awaited
    ::ERR_clear_error();
}

}  // namespace proto
