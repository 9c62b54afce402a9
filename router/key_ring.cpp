#include "router/key_ring.h"

#include <utility>

#include <boost/asio/ip/address.hpp>
#include <openssl/crypto.h>

namespace router {

void KeyRing::replace(const std::vector<KeyEntry>& entries) {
    std::vector<Key> keys;
    keys.reserve(entries.size());
    for (const KeyEntry& entry : entries) {
        const KeyId id = fair_share_.id_of(
            entry.name, {.weight = entry.weight, .requests_max = entry.requests_max});
        keys.push_back({entry.digest, std::make_shared<const Caller>(
                                          Caller{id, entry.name, entry.priority_min})});
    }
    keys_ = std::move(keys);
    entries_ = entries;
}

std::shared_ptr<const Caller> KeyRing::find(std::string_view presented) const {
    const Sha256 digest = sha256_of(presented);
    std::size_t found = 0;  // place + 1
    for (std::size_t i = 0; i < keys_.size(); ++i) {
        const auto is_equal = static_cast<std::size_t>(
            ::CRYPTO_memcmp(digest.data(), keys_[i].digest.data(), digest.size()) == 0);
        found |= (i + 1) & (std::size_t{0} - is_equal);  // digests differ: at most one matches
    }
    return found == 0 ? nullptr : keys_[found - 1].caller;
}

std::shared_ptr<const Caller> KeyRing::find(const proto::Headers& headers) const {
    if (!is_needed()) return anonymous_;
    const std::optional<std::string_view> presented = proto::api_key(headers);
    return presented ? find(*presented) : nullptr;
}

std::vector<std::shared_ptr<const Caller>> KeyRing::callers() const {
    std::vector<std::shared_ptr<const Caller>> callers;
    for (const Key& key : keys_)
        callers.push_back(key.caller);
    return callers;
}

proto::HttpResponse unauthorized_response() {
    proto::HttpResponse response = proto::error_response(
        {proto::ErrorCode::kInvalidApiKey,
         "A valid API key is needed: send 'Authorization: Bearer KEY' or 'x-api-key: KEY'."});
    response.headers.add("WWW-Authenticate", "Bearer");
    return response;
}

bool is_loopback_address(std::string_view address) {
    boost::system::error_code error;
    const auto parsed = boost::asio::ip::make_address(std::string(address), error);
    if (error) return false;
    if (parsed.is_v6() && parsed.to_v6().is_v4_mapped()) {
        return boost::asio::ip::make_address_v4(boost::asio::ip::v4_mapped, parsed.to_v6())
            .is_loopback();
    }
    return parsed.is_loopback();
}

}  // namespace router
