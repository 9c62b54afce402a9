#include "proto/http_gate.h"

#include <algorithm>
#include <array>
#include <charconv>

namespace proto {
namespace {

constexpr std::size_t kLengthDigitsMax = 19;  // any such number fits 64 bits

tl::unexpected<GateError> refuse(GateReason reason, std::string message,
                                 ErrorCode code = ErrorCode::kBadRequest, int status = 0) {
    ApiError error{code, std::move(message), {}, {}, {}};
    if (status != 0) error.status = status;
    return tl::unexpected<GateError>(GateError{reason, std::move(error)});
}

std::string_view trim(std::string_view text) {
    while (!text.empty() && (text.front() == ' ' || text.front() == '\t'))
        text.remove_prefix(1);
    while (!text.empty() && (text.back() == ' ' || text.back() == '\t'))
        text.remove_suffix(1);
    return text;
}

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/// RFC 9110 section 5.6.2.
bool is_token_char(char c) {
    if (is_digit(c) || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z')) return true;
    return std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

bool is_token(std::string_view text) {
    return !text.empty() && std::ranges::all_of(text, is_token_char);
}

bool has_high_byte(std::string_view text) {
    return std::ranges::any_of(text, [](char c) { return static_cast<unsigned char>(c) >= 0x80; });
}

/// Calls `use` with each member of the comma-separated list that all fields of this name form.
template <class Use>
void for_each_list_member(const Headers& headers, std::string_view name, Use use) {
    for (const Headers::Field& field : headers) {
        if (!equal_no_case(field.name, name)) continue;
        std::string_view rest = field.value;
        while (true) {
            const std::size_t comma = rest.find(',');
            use(trim(rest.substr(0, comma)));
            if (comma == std::string_view::npos) break;
            rest.remove_prefix(comma + 1);
        }
    }
}

bool has_version_shape(std::string_view text) {
    return text.size() == 8 && text.starts_with("HTTP/") && is_digit(text[5]) && text[6] == '.' &&
           is_digit(text[7]);
}

tl::expected<void, GateError> check_request_line(std::string_view line) {
    const std::size_t first = line.find(' ');
    const std::string_view method = line.substr(0, first);
    if (method.size() > kMethodBytesMax) {
        return refuse(GateReason::kHeadSyntax, "The method is too long.");
    }
    if (!is_token(method) || first == std::string_view::npos) {
        return refuse(GateReason::kHeadSyntax, "The request line is malformed.");
    }
    const std::size_t last = line.rfind(' ');
    if (last == first) {
        return refuse(GateReason::kVersion, "The request line names no HTTP version.",
                      ErrorCode::kBadRequest, 505);
    }
    const std::string_view target = line.substr(first + 1, last - first - 1);
    if (target.empty() || target.find(' ') != std::string_view::npos) {
        return refuse(GateReason::kHeadSyntax, "The request line is malformed.");
    }
    const std::string_view version = line.substr(last + 1);
    if (version != "HTTP/1.1" && version != "HTTP/1.0") {
        return refuse(GateReason::kVersion, "Only HTTP/1.1 and HTTP/1.0 are spoken here.",
                      ErrorCode::kBadRequest, 505);
    }
    return {};
}

tl::expected<void, GateError> check_status_line(std::string_view line) {
    const bool is_good = line.size() >= 12 && has_version_shape(line.substr(0, 8)) &&
                         line.starts_with("HTTP/1.") && line[8] == ' ' && line[9] >= '1' &&
                         line[9] <= '5' && is_digit(line[10]) && is_digit(line[11]) &&
                         (line.size() == 12 || line[12] == ' ');
    if (!is_good) return refuse(GateReason::kHeadSyntax, "The status line is malformed.");
    return {};
}

tl::expected<void, GateError> check_field_line(std::string_view line) {
    if (line.front() == ' ' || line.front() == '\t') {
        return refuse(GateReason::kHeadSyntax, "A folded header line.");
    }
    const std::size_t colon = line.find(':');
    if (colon == std::string_view::npos) {
        return refuse(GateReason::kHeadSyntax, "A header line without a colon.");
    }
    if (!is_token(line.substr(0, colon))) {
        return refuse(GateReason::kHeadSyntax, "A malformed header name.");
    }
    return {};
}

struct Authority {
    std::string_view host;  // brackets of an IPv6 address included
    std::string_view port;
};

/// host[:port] with the characters of a registered name, an IPv4 or a bracketed IPv6 address.
std::optional<Authority> parse_authority(std::string_view text) {
    Authority authority;
    if (text.starts_with('[')) {
        const std::size_t close = text.find(']');
        if (close == std::string_view::npos || close == 1) return std::nullopt;
        authority.host = text.substr(0, close + 1);
        const std::string_view inside = text.substr(1, close - 1);
        if (inside.find_first_not_of("0123456789abcdefABCDEF:.") != std::string_view::npos) {
            return std::nullopt;
        }
        text.remove_prefix(close + 1);
    } else {
        authority.host = text.substr(0, text.find(':'));
        text.remove_prefix(authority.host.size());
        const bool is_name = std::ranges::all_of(authority.host, [](char c) {
            return is_digit(c) || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || c == '-' ||
                   c == '.' || c == '_' || c == '~' || c == '%';
        });
        if (authority.host.empty() || !is_name) return std::nullopt;
    }
    if (text.empty()) return authority;
    authority.port = text.substr(1);
    if (text.front() != ':' || authority.port.size() > 5 ||
        !std::ranges::all_of(authority.port, is_digit)) {
        return std::nullopt;
    }
    return authority;
}

tl::expected<void, GateError> check_host(const HttpRequestHead& head) {
    if (head.headers.count("host") != 1 ||
        !parse_authority(trim(head.headers.get("host"))).has_value()) {
        return refuse(GateReason::kHost, "Exactly one Host field with a host name is needed.");
    }
    return {};
}

tl::expected<void, GateError> split_target(HttpRequestHead& head, std::string_view target) {
    if (has_high_byte(target) || target.find('#') != std::string_view::npos) {
        return refuse(GateReason::kTarget, "The request target holds bytes that no target may.");
    }
    // An authority (CONNECT) and '*' reach the route table, which answers 405 and 204.
    const bool is_whole = (target == "*" && head.method == "OPTIONS") || head.method == "CONNECT";
    if (!is_whole && target.front() != '/') {
        // Whoever ends TLS before us passes on what the client wrote, so either scheme may come.
        const auto has_scheme = [target](std::string_view scheme) {
            return equal_no_case(target.substr(0, scheme.size()), scheme);
        };
        constexpr std::string_view kPlain = "http://", kTls = "https://";
        if (!has_scheme(kPlain) && !has_scheme(kTls)) {
            return refuse(GateReason::kTarget, "The request target must begin with '/'.");
        }
        target.remove_prefix(has_scheme(kTls) ? kTls.size() : kPlain.size());
        const std::string_view authority =
            target.substr(0, std::min(target.find_first_of("/?"), target.size()));
        if (!equal_no_case(authority, trim(head.headers.get("host")))) {
            return refuse(GateReason::kTarget, "The request target names another host than Host.");
        }
        target.remove_prefix(authority.size());
        if (target.empty() || target.front() == '?') head.path = "/";
    }
    const std::size_t question = is_whole ? std::string_view::npos : target.find('?');
    head.path += target.substr(0, question);
    if (question != std::string_view::npos) head.query = target.substr(question + 1);
    return {};
}

/// Fields whose bytes may be compared, logged or passed on: ASCII only.
tl::expected<void, GateError> check_plain_fields(const Headers& headers) {
    constexpr std::array<std::string_view, 6> kPlainFields = {
        "host", "authorization", "x-api-key", "traceparent", "tracestate", "x-request-id"};
    for (const Headers::Field& field : headers) {
        const bool is_plain_field = std::ranges::any_of(
            kPlainFields, [&](std::string_view name) { return equal_no_case(field.name, name); });
        if (is_plain_field && has_high_byte(field.value)) {
            return refuse(GateReason::kHeadSyntax,
                          "The field " + printable(field.name, 32) + " must be ASCII.");
        }
    }
    return {};
}

tl::expected<void, GateError> check_expectation(HttpRequestHead& head) {
    bool is_known = true;
    for_each_list_member(head.headers, "expect", [&](std::string_view member) {
        is_known = is_known && equal_no_case(member, "100-continue");
        head.expects_continue = true;
    });
    if (!is_known) {
        return refuse(GateReason::kExpectation, "Only 'Expect: 100-continue' is understood.",
                      ErrorCode::kExpectationFailed);
    }
    // An HTTP/1.0 client cannot read an interim answer.
    if (head.is_http_1_0) head.expects_continue = false;
    return {};
}

bool wants_keep_alive(const HttpRequestHead& head) {
    bool has_close = false;
    bool has_keep_alive = false;
    for_each_list_member(head.headers, "connection", [&](std::string_view member) {
        has_close = has_close || equal_no_case(member, "close");
        has_keep_alive = has_keep_alive || equal_no_case(member, "keep-alive");
    });
    return !has_close && (!head.is_http_1_0 || has_keep_alive);
}

}  // namespace

std::string_view gate_reason_name(GateReason reason) {
    constexpr std::array<std::string_view, kGateReasonCount> kNames = {
        "head_syntax", "head_too_large",  "version",       "target",       "host",
        "length",      "transfer_coding", "chunk_framing", "trailer",      "body_too_large",
        "expectation", "header_timeout",  "body_timeout",  "plain_on_tls",
    };
    return kNames[static_cast<std::size_t>(reason)];
}

tl::expected<std::optional<HeadScanner::Done>, GateError> HeadScanner::scan(
    std::string_view bytes) {
    while (position_ < bytes.size()) {
        if (position_ - skip_ >= limits_.bytes_max) {
            return refuse(GateReason::kHeadTooLarge, "The head is too large.",
                          ErrorCode::kHeadersTooLarge);
        }
        const auto byte = static_cast<unsigned char>(bytes[position_]);
        if (byte == '\r') {
            if (position_ + 1 == bytes.size()) return std::nullopt;
            if (bytes[position_ + 1] != '\n') {
                return refuse(GateReason::kHeadSyntax, "A carriage return without a line feed.");
            }
            const std::string_view line = bytes.substr(line_begin_, position_ - line_begin_);
            position_ += 2;
            line_begin_ = position_;
            if (line.empty() && line_count_ == 0 && kind_ == Kind::kRequest && skip_ == 0) {
                skip_ = position_;  // one empty line before a request is forgiven
                continue;
            }
            if (line.empty() && (line_count_ > 0 || kind_ == Kind::kTrailer)) {
                if (position_ - skip_ > limits_.bytes_max) {
                    return refuse(GateReason::kHeadTooLarge, "The head is too large.",
                                  ErrorCode::kHeadersTooLarge);
                }
                return Done{skip_, position_ - skip_};
            }
            if (auto checked = end_of_line(line); !checked) {
                return tl::unexpected(checked.error());
            }
            continue;
        }
        if ((byte < 0x20 && byte != '\t') || byte == 0x7F) {
            return refuse(GateReason::kHeadSyntax, byte == '\n'
                                                       ? "A line feed without a carriage return."
                                                       : "A control byte in the head.");
        }
        ++position_;
    }
    return std::nullopt;
}

tl::expected<void, GateError> HeadScanner::end_of_line(std::string_view line) {
    const bool is_first = line_count_ == 0 && kind_ != Kind::kTrailer;
    if (line.empty()) return refuse(GateReason::kHeadSyntax, "An empty line before the head.");
    ++line_count_;
    if (is_first) {
        return kind_ == Kind::kRequest ? check_request_line(line) : check_status_line(line);
    }
    const std::size_t field_count = kind_ == Kind::kTrailer ? line_count_ : line_count_ - 1;
    if (field_count > limits_.fields_max) {
        return refuse(GateReason::kHeadTooLarge, "Too many header fields.",
                      ErrorCode::kHeadersTooLarge);
    }
    return check_field_line(line);
}

tl::expected<BodyFraming, GateError> check_framing(const Headers& headers, int version) {
    BodyFraming framing;
    const std::size_t length_count = headers.count("content-length");
    const bool has_coding = headers.contains("transfer-encoding");
    if (has_coding && length_count > 0) {
        return refuse(GateReason::kLength, "Content-Length together with Transfer-Encoding.");
    }
    if (length_count > 1) {
        return refuse(GateReason::kLength, "More than one Content-Length.");
    }
    if (length_count == 1) {
        const std::string_view digits = trim(headers.get("content-length"));
        if (digits.empty() || digits.size() > kLengthDigitsMax ||
            !std::ranges::all_of(digits, is_digit)) {
            return refuse(GateReason::kLength, "Content-Length must be a plain decimal number.");
        }
        std::uint64_t length = 0;
        std::from_chars(digits.data(), digits.data() + digits.size(), length);
        framing.content_length = length;
    }
    if (!has_coding) return framing;
    if (version < 11) {
        return refuse(GateReason::kTransferCoding, "Transfer-Encoding needs HTTP/1.1.");
    }
    std::size_t chunked_count = 0;
    std::size_t other_count = 0;
    bool is_last = false;
    for_each_list_member(headers, "transfer-encoding", [&](std::string_view coding) {
        is_last = equal_no_case(coding, "chunked");
        ++(is_last ? chunked_count : other_count);
    });
    if (chunked_count > 1 || (chunked_count == 1 && !is_last)) {
        return refuse(GateReason::kTransferCoding, "'chunked' must be the last coding, once.");
    }
    if (other_count > 0) {
        return refuse(GateReason::kTransferCoding, "The only transfer coding here is 'chunked'.",
                      ErrorCode::kTransferEncodingUnsupported);
    }
    framing.is_chunked = true;
    return framing;
}

tl::expected<void, GateError> check_request_head(HttpRequestHead& head, std::string_view target,
                                                 int version) {
    head.is_http_1_0 = version == 10;
    tl::expected<BodyFraming, GateError> framing = check_framing(head.headers, version);
    if (!framing) return tl::unexpected(framing.error());
    head.is_chunked = framing->is_chunked;
    head.content_length = framing->content_length;
    if (auto host = check_host(head); !host) return host;
    if (auto plain = check_plain_fields(head.headers); !plain) return plain;
    if (auto split = split_target(head, target); !split) return split;
    if (auto expectation = check_expectation(head); !expectation) return expectation;
    head.keep_alive = wants_keep_alive(head);
    return {};
}

bool is_host_ours(std::string_view host, std::string_view local_address,
                  const std::vector<std::string>& allowed) {
    const std::optional<Authority> authority = parse_authority(trim(host));
    if (!authority) return false;
    std::string_view name = authority->host;
    for (const std::string& entry : allowed) {
        if (equal_no_case(entry, name) || equal_no_case(entry, trim(host))) return true;
    }
    if (equal_no_case(name, "localhost")) return true;
    if (name.starts_with('[')) name = name.substr(1, name.size() - 2);
    return name == local_address || name == "127.0.0.1" || name == "::1";
}

}  // namespace proto
