// outlet_sink: spdlog's way to an Outlet: a log whose reader may stop reading without stopping us.
//
//   logger ─▶ OutletSink: one line of text ─▶ Outlet ─▶ stderr
//
// What the reader does not take waits, and beyond kOutletBytesMax it is dropped and counted; when
// he reads again, a line says how many are missing. Thread-safe with a real mutex; a process that
// logs on one thread takes spdlog's null_mutex.
#pragma once

#include <chrono>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include <spdlog/sinks/base_sink.h>

#include "proto/outlet.h"

namespace proto {

/// What a slow reader of a log gets at the end of the process.
inline constexpr std::chrono::milliseconds kOutletFarewell{500};

template <class Mutex>
class OutletSink : public spdlog::sinks::base_sink<Mutex> {
public:
    /// `fd` stays the caller's. `process`: whose log it is, as its lines name it.
    OutletSink(int fd, std::string process) : outlet_(fd), process_(std::move(process)) {}
    ~OutletSink() override { (void)outlet_.flush_within(kOutletFarewell); }

protected:
    void sink_it_(const spdlog::details::log_msg& message) override {
        spdlog::memory_buf_t line;
        this->formatter_->format(message, line);
        put({line.data(), line.size()});
    }
    void flush_() override { put({}); }

    /// Takes whole lines and writes what can be written now.
    void put(std::string_view lines) {
        if (!lines.empty()) (void)outlet_.add(lines);
        if (outlet_.flush()) say_dropped();
    }
    [[nodiscard]] Outlet& outlet() { return outlet_; }

private:
    /// The reader is back, as far as one can tell; should this line fail, it is one of the dropped.
    void say_dropped() {
        const std::uint64_t dropped = outlet_.take_dropped();
        if (dropped == 0) return;
        const std::string text = "event=log_resumed lines_dropped=" + std::to_string(dropped);
        spdlog::memory_buf_t line;
        this->formatter_->format({process_, spdlog::level::warn, text}, line);
        (void)outlet_.add({line.data(), line.size()});
        (void)outlet_.flush();
    }

    Outlet outlet_;
    std::string process_;
};

}  // namespace proto
