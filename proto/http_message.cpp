#include "proto/http_message.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

#include <unistd.h>

namespace proto {
namespace {

constexpr char lower(char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
}

/// Bytes of the kernel, since ids must not repeat between processes; many a call, since every
/// request takes some.
class RandomBytes {
public:
    std::uint8_t next() {
        if (used_ == bytes_.size()) refill();
        return bytes_[used_++];
    }

private:
    void refill() {
        if (::getentropy(bytes_.data(), bytes_.size()) != 0) {
            throw std::system_error(errno, std::generic_category(), "getentropy");
        }
        used_ = 0;
    }

    std::array<std::uint8_t, 256> bytes_{};  // as many as getentropy() gives
    std::size_t used_ = bytes_.size();
};

std::string random_hex(std::size_t digits) {
    constexpr std::string_view kHex = "0123456789abcdef";
    thread_local RandomBytes random;
    std::string text;
    text.reserve(digits + 1);
    while (text.size() < digits) {
        const std::uint8_t bits = random.next();
        text += kHex[bits & 0xFU];
        text += kHex[bits >> 4U];
    }
    text.resize(digits);
    return text;
}

}  // namespace

bool equal_no_case(std::string_view a, std::string_view b) {
    return std::ranges::equal(a, b, {}, lower, lower);
}

void Headers::add(std::string name, std::string value) {
    fields_.emplace_back(std::move(name), std::move(value));
}

void Headers::set(std::string name, std::string value) {
    remove(name);
    add(std::move(name), std::move(value));
}

void Headers::remove(std::string_view name) {
    std::erase_if(fields_, [&](const Field& field) { return equal_no_case(field.name, name); });
}

std::optional<std::string_view> Headers::find(std::string_view name) const {
    for (const Field& field : fields_) {
        if (equal_no_case(field.name, name)) return field.value;
    }
    return std::nullopt;
}

std::string_view Headers::get(std::string_view name) const {
    return find(name).value_or(std::string_view{});
}

std::size_t Headers::count(std::string_view name) const {
    return static_cast<std::size_t>(std::ranges::count_if(
        fields_, [&](const Field& field) { return equal_no_case(field.name, name); }));
}

HttpResponse json_response(std::string body, int status) {
    HttpResponse response;
    response.status = status;
    response.headers.add("Content-Type", "application/json");
    response.body = std::move(body);
    return response;
}

HttpResponse text_response(std::string body, int status, std::string_view content_type) {
    HttpResponse response;
    response.status = status;
    response.headers.add("Content-Type", std::string(content_type));
    response.body = std::move(body);
    return response;
}

HttpResponse error_response(const ApiError& error) {
    HttpResponse response = json_response(error_body(error), error.http_status());
    if (error.retry_after_s) {
        response.headers.add("Retry-After", std::to_string(*error.retry_after_s));
    }
    return response;
}

std::string_view status_reason(int status) {
    switch (status) {
        case 100:
            return "Continue";
        case 200:
            return "OK";
        case 202:
            return "Accepted";
        case 204:
            return "No Content";
        case 400:
            return "Bad Request";
        case 401:
            return "Unauthorized";
        case 403:
            return "Forbidden";
        case 404:
            return "Not Found";
        case 405:
            return "Method Not Allowed";
        case 408:
            return "Request Timeout";
        case 409:
            return "Conflict";
        case 413:
            return "Content Too Large";
        case 415:
            return "Unsupported Media Type";
        case 417:
            return "Expectation Failed";
        case 421:
            return "Misdirected Request";
        case 429:
            return "Too Many Requests";
        case 431:
            return "Request Header Fields Too Large";
        case 500:
            return "Internal Server Error";
        case 501:
            return "Not Implemented";
        case 502:
            return "Bad Gateway";
        case 503:
            return "Service Unavailable";
        case 504:
            return "Gateway Timeout";
        case 505:
            return "HTTP Version Not Supported";
        default:
            return "";
    }
}

std::string make_request_id() {
    return "req-" + random_hex(24);
}

std::string make_instance_id() {
    return random_hex(16);
}

bool is_valid_request_id(std::string_view id) {
    constexpr std::string_view kAllowed =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._:-";
    return !id.empty() && id.size() <= kRequestIdBytesMax &&
           id.find_first_not_of(kAllowed) == std::string_view::npos;
}

std::optional<std::string_view> api_key(const Headers& headers) {
    if (const auto authorization = headers.find("authorization")) {
        constexpr std::string_view kBearer = "bearer ";
        if (equal_no_case(authorization->substr(0, kBearer.size()), kBearer)) {
            std::string_view key = authorization->substr(kBearer.size());
            key.remove_prefix(std::min(key.find_first_not_of(' '), key.size()));
            return key;
        }
    }
    return headers.find("x-api-key");
}

std::optional<std::string_view> query_value(std::string_view query, std::string_view name) {
    while (!query.empty()) {
        const std::string_view pair = query.substr(0, query.find('&'));
        const std::string_view key = pair.substr(0, pair.find('='));
        if (key == name) return pair.substr(std::min(key.size() + 1, pair.size()));
        query.remove_prefix(std::min(pair.size() + 1, query.size()));
    }
    return std::nullopt;
}

}  // namespace proto
