// chaos_proxy: a TCP proxy that spoils connections, for tests. It stands between any two ends:
// client and router, router and replica, launcher and whoever answers it.
//
//   client ──▶ [ up: a Chaos ] ──▶ server
//          ◀── [ down: a Chaos ] ◀──
//
// Bytes are never changed, only late, slow, cut or missing. What is set holds for connections that
// are accepted from then on; with nothing set it passes everything at once. It runs on a thread of
// its own; all calls are safe from any thread. The seven ways of spoiling are those of Toxiproxy.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

namespace support {

/// What happens to the bytes of one direction.
struct Chaos {
    std::chrono::milliseconds latency{0};     // every byte arrives this much later
    std::size_t bytes_per_s = 0;              // bandwidth; 0: no limit
    std::chrono::milliseconds slow_close{0};  // the end of the stream is passed on this much later
    /// Nothing passes; after this time both sides are closed. 0: they stay open.
    std::optional<std::chrono::milliseconds> timeout;
    /// This long after the connection began both sides get RST.
    std::optional<std::chrono::milliseconds> reset_after;
    std::size_t slice_bytes = 0;             // slicer: pieces of this size, each its own segment
    std::chrono::microseconds slice_gap{0};  // between them
    /// After this many bytes both sides are closed.
    std::optional<std::size_t> limit_bytes;
};

class ChaosProxy {
public:
    /// Listens on a free port of 127.0.0.1 for a server at 127.0.0.1:`server_port`. Throws
    /// std::system_error.
    explicit ChaosProxy(std::uint16_t server_port);
    /// Cuts what is open.
    ~ChaosProxy();
    ChaosProxy(const ChaosProxy&) = delete;
    ChaosProxy& operator=(const ChaosProxy&) = delete;

    [[nodiscard]] std::uint16_t port() const;
    /// For connections accepted from now on.
    void set(Chaos up, Chaos down);
    /// Connections accepted so far.
    [[nodiscard]] std::size_t accepted() const;
    /// RST to both sides of all that is open now.
    void reset_all();

private:
    class Loop;
    std::unique_ptr<Loop> loop_;
};

}  // namespace support
