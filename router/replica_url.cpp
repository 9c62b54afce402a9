#include "router/replica_url.h"

#include <algorithm>
#include <string>

#include <boost/asio/ip/address.hpp>
#include <ifaddrs.h>
#include <netinet/in.h>

namespace router {
namespace {

using Address = boost::asio::ip::address;

constexpr std::size_t kUrlBytesMax = 300;  // the longest host name is 253

proto::Result<proto::Endpoint> refuse(std::string_view url, const std::string& why) {
    return proto::fail(
        proto::ErrorCode::kInvalidValue,
        "A replica's url is http://HOST:PORT; '" + proto::printable(url) + "' " + why + ".", "url");
}

/// None for what is no literal address.
std::optional<Address> address_of(const std::string& text) {
    boost::system::error_code error;
    Address address =
        boost::asio::ip::make_address(text == "localhost" ? "127.0.0.1" : text, error);
    if (error) return std::nullopt;
    if (address.is_v6() && address.to_v6().is_v4_mapped()) {
        address = boost::asio::ip::make_address_v4(boost::asio::ip::v4_mapped, address.to_v6());
    }
    return address;
}

bool is_of_this_machine(const Address& address) {
    if (address.is_loopback() || address.is_unspecified()) return true;
    ifaddrs* all = nullptr;
    if (::getifaddrs(&all) != 0) return false;
    bool is_found = false;
    for (const ifaddrs* one = all; one != nullptr && !is_found; one = one->ifa_next) {
        if (one->ifa_addr == nullptr) continue;
        if (one->ifa_addr->sa_family == AF_INET && address.is_v4()) {
            const auto* v4 = reinterpret_cast<const sockaddr_in*>(one->ifa_addr);
            is_found = ntohl(v4->sin_addr.s_addr) == address.to_v4().to_uint();
        } else if (one->ifa_addr->sa_family == AF_INET6 && address.is_v6()) {
            const auto* v6 = reinterpret_cast<const sockaddr_in6*>(one->ifa_addr);
            const auto bytes = address.to_v6().to_bytes();
            is_found = std::equal(bytes.begin(), bytes.end(), v6->sin6_addr.s6_addr);
        }
    }
    ::freeifaddrs(all);
    return is_found;
}

}  // namespace

proto::Result<proto::Endpoint> parse_replica_url(std::string_view url) {
    constexpr std::string_view kScheme = "http://";
    if (url.size() > kUrlBytesMax) return refuse(url.substr(0, 40), "is longer than 300 bytes");
    if (!url.starts_with(kScheme)) return refuse(url, "does not begin with http://");
    const std::string_view rest = url.substr(kScheme.size());
    if (rest.find('@') != std::string_view::npos) return refuse(url, "names a user");
    const std::size_t end = rest.find_first_of("/?#");
    if (end != std::string_view::npos && rest.substr(end) != "/") {
        return refuse(url, "has something behind the port");
    }
    const auto parts = proto::parse_http_url(url);
    if (!parts) return refuse(url, "has no valid host or port");
    if (parts->endpoint.port == 0) return refuse(url, "has the port 0");
    return parts->endpoint;
}

bool is_own_endpoint(const proto::Endpoint& endpoint, std::string_view address, int port) {
    if (endpoint.port != port) return false;
    const std::optional<Address> asked = address_of(endpoint.host);
    const std::optional<Address> own = address_of(std::string(address));
    if (!asked || !own || !is_of_this_machine(*asked)) return false;
    if (own->is_unspecified() || asked->is_unspecified()) return true;
    return *own == *asked;
}

}  // namespace router
