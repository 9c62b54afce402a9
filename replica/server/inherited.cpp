#include "replica/server/inherited.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <stdexcept>
#include <string_view>

#include <fcntl.h>
#include <unistd.h>

namespace replica::server {
namespace {

constexpr int kFirstInheritedFd = 3;
constexpr std::size_t kKeyBytesMax = 4096;

std::string_view trimmed(std::string_view text) {
    constexpr std::string_view kBlanks = " \t\r\n";
    const std::size_t begin = text.find_first_not_of(kBlanks);
    if (begin == std::string_view::npos) return {};
    return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

std::string hex_of(std::string_view bytes) {
    constexpr std::string_view kHex = "0123456789abcdef";
    std::string text;
    for (const char c : bytes) {
        const auto byte = static_cast<unsigned char>(c);
        text += kHex[byte >> 4U];
        text += kHex[byte & 0xFU];
    }
    return text;
}

}  // namespace

std::optional<int> inherited_socket() {
    const char* count = std::getenv("LISTEN_FDS");
    const char* pid = std::getenv("LISTEN_PID");
    if (count == nullptr || std::atoi(count) < 1) return std::nullopt;
    if (pid != nullptr && std::atoi(pid) != static_cast<int>(::getpid())) return std::nullopt;
    ::fcntl(kFirstInheritedFd, F_SETFD, FD_CLOEXEC);
    return kFirstInheritedFd;
}

std::string read_internal_key(int fd) {
    std::array<char, kKeyBytesMax> buffer{};
    // A memfd that its writer has filled stands at its end; a pipe cannot seek.
    ssize_t size = ::pread(fd, buffer.data(), buffer.size(), 0);
    if (size < 0) size = ::read(fd, buffer.data(), buffer.size());
    ::close(fd);
    if (size <= 0) throw std::runtime_error("the internal key cannot be read");
    const std::string_view bytes(buffer.data(), static_cast<std::size_t>(size));
    const std::string_view text = trimmed(bytes);
    const bool is_text =
        std::all_of(text.begin(), text.end(), [](char c) { return c > 0x20 && c < 0x7F; });
    const std::string key = is_text ? std::string(text) : hex_of(bytes);
    if (key.empty()) throw std::runtime_error("the internal key is empty");
    return key;
}

}  // namespace replica::server
