// An issuer of certificates that exists for one test: its key never leaves the process's memory but
// as the server keys it is asked for.
#pragma once

#include <memory>
#include <string>

#include <openssl/evp.h>
#include <openssl/x509.h>

namespace test_tls {

struct IssuedFiles {
    std::string certificate;  // PEM
    std::string key;          // PEM
};

class TestCa {
public:
    TestCa();
    ~TestCa();
    TestCa(const TestCa&) = delete;
    TestCa& operator=(const TestCa&) = delete;

    /// A certificate for "localhost" and 127.0.0.1 whose common name is `name`; valid until
    /// `days` from now (negative: it has ended).
    [[nodiscard]] IssuedFiles issue(const std::string& name, int days = 2) const;

    [[nodiscard]] X509* certificate() const { return certificate_; }

private:
    EVP_PKEY* key_;
    X509* certificate_;
};

}  // namespace test_tls
