// The file of API keys. It holds no key, only their SHA-256 digests:
//
//   [[key]]
//   name = "alice"              # for logs and metrics; letters, digits, . _ -
//   sha256 = "2bd806c9…"        # printf %s "$KEY" | sha256sum
//   priority_min = -20          # may not ask to run earlier than this; default -100
//   weight = 2                  # share of service beside other keys; default 1
//   requests_max = 8            # running at once, the rest waits; default: no limit
//
// TOML, as the launcher's settings. One wrong entry makes the whole file wrong: a key that is left
// out by mistake locks somebody out, a limit that is left out lets somebody in too far.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tl/expected.hpp>

namespace router {

using Sha256 = std::array<std::uint8_t, 32>;
[[nodiscard]] Sha256 sha256_of(std::string_view bytes);

struct KeyEntry {
    std::string name;
    Sha256 digest{};
    int priority_min = -100;
    double weight = 1;
    std::optional<int> requests_max;
};

inline constexpr std::size_t kKeyFileBytesMax = std::size_t{1} << 20;
/// Each request is compared with all of them.
inline constexpr std::size_t kKeysMax = 4096;
inline constexpr std::size_t kKeyNameBytesMax = 64;

/// The entries, at least one, or a sentence that says what is wrong, where, and what is wanted.
[[nodiscard]] tl::expected<std::vector<KeyEntry>, std::string> parse_key_file(
    const std::string& text);

/// The text of a file, at most kKeyFileBytesMax + 1 bytes of it, or why it cannot be read.
[[nodiscard]] tl::expected<std::string, std::string> read_key_text(const std::string& path);

}  // namespace router
