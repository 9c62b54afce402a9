#include "replica/server/digest.h"

#include <array>
#include <stdexcept>

#include <openssl/evp.h>

namespace replica::server {
namespace {

void check(int result) {
    if (result != 1) throw std::runtime_error("SHA-256 is not available in this OpenSSL");
}

}  // namespace

struct Sha256::State {
    EVP_MD_CTX* context = EVP_MD_CTX_new();
    State() = default;
    State(const State&) = delete;
    State& operator=(const State&) = delete;
    ~State() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
    check(state_->context == nullptr ? 0
                                     : EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr));
}
Sha256::~Sha256() = default;

void Sha256::update(std::string_view text) {
    check(EVP_DigestUpdate(state_->context, text.data(), text.size()));
}

void Sha256::update(std::span<const std::byte> bytes) {
    check(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()));
}

std::string Sha256::hex() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned size = 0;
    check(EVP_DigestFinal_ex(state_->context, digest.data(), &size));
    constexpr std::string_view kHex = "0123456789abcdef";
    std::string text;
    for (unsigned i = 0; i < size; ++i) {
        text += kHex[digest[i] >> 4U];
        text += kHex[digest[i] & 0xFU];
    }
    return text;
}

}  // namespace replica::server
