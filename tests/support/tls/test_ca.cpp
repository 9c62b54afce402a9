#include "tests/support/tls/test_ca.h"

#include <atomic>
#include <stdexcept>

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

namespace test_tls {
namespace {

constexpr long kDaySeconds = 86'400;

template <class T>
T* must(T* made) {
    if (made == nullptr) throw std::runtime_error("OpenSSL cannot make a test certificate");
    return made;
}

void add_extension(X509* certificate, X509* issuer, int kind, const char* value) {
    X509V3_CTX context;
    ::X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
    X509_EXTENSION* extension = must(::X509V3_EXT_conf_nid(nullptr, &context, kind, value));
    ::X509_add_ext(certificate, extension, -1);
    ::X509_EXTENSION_free(extension);
}

/// Without extensions and signature.
X509* make_certificate(const std::string& name, EVP_PKEY* key, const X509_NAME* issuer, int days) {
    static std::atomic<long> serial{1};
    X509* certificate = must(::X509_new());
    ::X509_set_version(certificate, 2);
    ::ASN1_INTEGER_set(::X509_get_serialNumber(certificate), serial++);
    ::X509_gmtime_adj(::X509_getm_notBefore(certificate), -30 * kDaySeconds);
    ::X509_gmtime_adj(::X509_getm_notAfter(certificate), days * kDaySeconds);
    ::X509_set_pubkey(certificate, key);
    X509_NAME* subject = ::X509_get_subject_name(certificate);
    ::X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC,
                                 reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
    ::X509_set_issuer_name(certificate, issuer == nullptr ? subject : issuer);
    return certificate;
}

/// Issuers of one name would be taken for one another.
std::string fresh_name() {
    static std::atomic<int> count{0};
    return "test issuer " + std::to_string(++count);
}

template <class Write>
std::string pem_of(Write write) {
    BIO* memory = must(::BIO_new(::BIO_s_mem()));
    write(memory);
    char* bytes = nullptr;
    const long size = ::BIO_get_mem_data(memory, &bytes);
    std::string text(bytes, static_cast<std::size_t>(size));
    ::BIO_free(memory);
    return text;
}

}  // namespace

TestCa::TestCa()
    : key_(must(::EVP_EC_gen("P-256"))),
      certificate_(make_certificate(fresh_name(), key_, nullptr, 10)) {
    add_extension(certificate_, certificate_, NID_basic_constraints, "critical,CA:TRUE");
    add_extension(certificate_, certificate_, NID_key_usage, "critical,keyCertSign");
    ::X509_sign(certificate_, key_, ::EVP_sha256());
}

TestCa::~TestCa() {
    ::X509_free(certificate_);
    ::EVP_PKEY_free(key_);
}

IssuedFiles TestCa::issue(const std::string& name, int days) const {
    EVP_PKEY* key = must(::EVP_EC_gen("P-256"));
    X509* certificate = make_certificate(name, key, ::X509_get_subject_name(certificate_), days);
    add_extension(certificate, certificate_, NID_subject_alt_name, "DNS:localhost,IP:127.0.0.1");
    ::X509_sign(certificate, key_, ::EVP_sha256());
    IssuedFiles files;
    files.certificate = pem_of([&](BIO* out) { ::PEM_write_bio_X509(out, certificate); });
    files.key = pem_of([&](BIO* out) {
        ::PEM_write_bio_PrivateKey(out, key, nullptr, nullptr, 0, nullptr, nullptr);
    });
    ::X509_free(certificate);
    ::EVP_PKEY_free(key);
    return files;
}

}  // namespace test_tls
