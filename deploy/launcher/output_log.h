// The last words of a child: its output cut into lines, the newest kept in a bounded ring.
#pragma once

#include <cstddef>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace deploy {

class OutputLog {
public:
    static constexpr std::size_t kLineBytesMax = 4 * 1024;
    static constexpr std::size_t kRingBytesMax = 64 * 1024;

    /// Takes bytes and returns the lines they complete, without LF. A longer line is cut and the
    /// rest of it dropped; bytes that are no printable text become '?'.
    std::vector<std::string> feed(std::string_view bytes);
    /// What is left without an LF, as a line; empty when nothing is.
    std::string finish();

    /// The newest lines, oldest first, at most `count`.
    std::vector<std::string> last(std::size_t count) const;
    std::size_t ring_bytes() const { return ring_bytes_; }

private:
    void keep(const std::string& line);

    std::string open_;  // the line being read
    std::deque<std::string> ring_;
    std::size_t ring_bytes_ = 0;
};

}  // namespace deploy
