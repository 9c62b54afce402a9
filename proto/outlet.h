// outlet: what a process says, on a descriptor whose reader may stop reading.
//
//   add(lines) ─▶ what waits, at most kOutletBytesMax ─▶ write, as far as it goes without waiting
//                        └ full: the lines are dropped and counted
//
// The descriptor is shared with other processes, so it cannot be made non-blocking itself. A pipe
// or a terminal is opened once more for that; where this is refused, poll() is asked before each
// write, and no write is larger than what a pipe that says "writable" takes. Not thread-safe.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace proto {

inline constexpr std::size_t kOutletBytesMax = std::size_t{1} << 20;

class Outlet {
public:
    /// `fd` stays the caller's and must stay open.
    explicit Outlet(int fd, std::size_t bytes_max = kOutletBytesMax);
    ~Outlet();
    Outlet(const Outlet&) = delete;
    Outlet& operator=(const Outlet&) = delete;

    /// Takes whole lines, all or none; false when they were dropped. Writes nothing yet.
    bool add(std::string_view lines);
    /// Writes what can be written now; true when nothing is left. What nobody can ever read (the
    /// reader has gone, the disk is full) is dropped and counted.
    bool flush();
    /// flush(), waiting for a slow reader for at most `patience`.
    bool flush_within(std::chrono::milliseconds patience);

    [[nodiscard]] bool is_empty() const { return waiting_.empty(); }
    /// Since the last call of this; the owner says it in a line when flush() works again.
    std::uint64_t take_dropped();
    [[nodiscard]] std::uint64_t dropped_total() const { return dropped_total_; }

private:
    enum class Kind { kFile, kPipe, kSocket };

    void drop(std::string_view lines);
    [[nodiscard]] long write_some(std::string_view bytes) const;

    int fd_;
    int own_fd_ = -1;  // the same file, opened again without waiting
    Kind kind_ = Kind::kFile;
    std::size_t bytes_max_;
    std::string waiting_;
    std::uint64_t dropped_ = 0;
    std::uint64_t dropped_total_ = 0;
};

}  // namespace proto
