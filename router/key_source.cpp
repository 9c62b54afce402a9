#include "router/key_source.h"

#include <array>
#include <cstdio>
#include <utility>

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

namespace router {
namespace {

constexpr std::size_t kDigestBytesShown = 4;
constexpr std::int64_t kNanosecondsPerSecond = 1'000'000'000;

bool write_all(int fd, std::string_view text) {
    while (!text.empty()) {
        const ssize_t count = ::write(fd, text.data(), text.size());
        if (count <= 0) return false;
        text.remove_prefix(static_cast<std::size_t>(count));
    }
    return true;
}

}  // namespace

KeySource::KeySource(std::string path, std::string copy)
    : path_(std::move(path)), copy_(std::move(copy)) {}

tl::expected<std::vector<KeyEntry>, std::string> KeySource::read_first() {
    auto entries = read_again();
    if (entries || copy_.empty()) return entries;
    const auto text = read_key_text(copy_);
    auto kept = text ? parse_key_file(*text)
                     : tl::expected<std::vector<KeyEntry>, std::string>(tl::unexpect, text.error());
    if (!kept) return entries;  // the file itself is what has to be mended
    in_use_ = sha256_of(*text);
    has_drifted_ = true;
    spdlog::error("event=keys_bad kept=last_good error=\"{}\"", entries.error());
    return kept;
}

tl::expected<std::vector<KeyEntry>, std::string> KeySource::read_again() {
    if (path_.empty()) return std::vector<KeyEntry>{};
    const Mark mark = mark_of_file();
    const auto text = read_key_text(path_);
    if (!text) return tl::unexpected(text.error());
    auto entries = parse_key_file(*text);
    if (!entries) {
        return tl::unexpected("the key file '" + path_ + "' is wrong: " + entries.error());
    }
    in_use_ = sha256_of(*text);
    looked_at_ = mark;
    has_drifted_ = false;
    keep_copy(*text);
    return entries;
}

void KeySource::keep_copy(const std::string& text) const {
    if (copy_.empty()) return;
    const std::string fresh = copy_ + ".new";
    const int fd = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    const bool is_written = fd >= 0 && write_all(fd, text);
    if (fd >= 0) ::close(fd);
    if (!is_written || ::rename(fresh.c_str(), copy_.c_str()) != 0) {
        spdlog::warn("event=no_copy_of_keys path={}", copy_);
    }
}

std::string KeySource::digest() const {
    if (path_.empty()) return {};
    std::string hex;
    for (std::size_t i = 0; i < kDigestBytesShown; ++i) {
        std::array<char, 3> digits{};
        std::snprintf(digits.data(), digits.size(), "%02x", in_use_.at(i));
        hex += digits.data();
    }
    return hex;
}

KeySource::Mark KeySource::mark_of_file() const {
    struct stat found {};
    if (::stat(path_.c_str(), &found) != 0) return {};
    return {.changed_ns = found.st_mtim.tv_sec * kNanosecondsPerSecond + found.st_mtim.tv_nsec,
            .size = found.st_size,
            .node = found.st_ino};
}

bool KeySource::has_drifted() {
    if (path_.empty()) return false;
    const Mark mark = mark_of_file();
    if (mark == looked_at_) return has_drifted_;
    looked_at_ = mark;
    const auto text = read_key_text(path_);
    has_drifted_ = !text || sha256_of(*text) != in_use_;
    return has_drifted_;
}

}  // namespace router
