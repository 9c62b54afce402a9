// The log's batching over a pipe: nothing is lost, lines of one turn leave together, warnings at
// once.
#include "router/log_sink.h"

#include <array>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <spdlog/logger.h>
#include <unistd.h>

namespace router {
namespace {

class Pipe {
public:
    Pipe() {
        std::array<int, 2> ends{};
        if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) std::abort();
        read_end_ = ends[0];
        write_end_ = ends[1];
    }
    ~Pipe() {
        ::close(read_end_);
        ::close(write_end_);
    }
    Pipe(const Pipe&) = delete;
    Pipe& operator=(const Pipe&) = delete;

    [[nodiscard]] int write_end() const { return write_end_; }
    /// What is in it now.
    [[nodiscard]] std::string take() const {
        std::array<char, 4096> bytes{};
        const ssize_t count = ::read(read_end_, bytes.data(), bytes.size());
        return {bytes.data(), static_cast<std::size_t>(std::max<ssize_t>(count, 0))};
    }

private:
    int read_end_ = -1, write_end_ = -1;
};

std::shared_ptr<spdlog::logger> logger_of(const std::shared_ptr<LogSink>& sink) {
    auto logger = std::make_shared<spdlog::logger>("test", sink);
    logger->set_pattern("%v");
    return logger;
}

TEST(LogSinkTest, WithoutALoopEveryLineIsWrittenAtOnce) {
    const Pipe pipe;
    const auto sink = std::make_shared<LogSink>(pipe.write_end());
    logger_of(sink)->info("one");
    EXPECT_EQ(pipe.take(), "one\n");
}

TEST(LogSinkTest, LinesOfOneTurnLeaveTogetherAtItsEnd) {
    const Pipe pipe;
    boost::asio::io_context loop;
    const auto sink = std::make_shared<LogSink>(pipe.write_end());
    const auto logger = logger_of(sink);
    const LogBatching batching(*sink, loop.get_executor());
    std::string seen_between;
    boost::asio::post(loop, [&] { logger->info("one"); });
    boost::asio::post(loop, [&] {
        seen_between = pipe.take();
        logger->info("two");
    });
    loop.run();
    EXPECT_EQ(seen_between, "");
    EXPECT_EQ(pipe.take(), "one\ntwo\n");
    loop.restart();
    boost::asio::post(loop, [&] { logger->info("three"); });
    loop.run();
    EXPECT_EQ(pipe.take(), "three\n") << "the next turn has a batch of its own";
}

TEST(LogSinkTest, AWarningTakesAllBeforeItAlong) {
    const Pipe pipe;
    boost::asio::io_context loop;
    const auto sink = std::make_shared<LogSink>(pipe.write_end());
    const auto logger = logger_of(sink);
    const LogBatching batching(*sink, loop.get_executor());
    logger->info("one");
    logger->warn("two");
    EXPECT_EQ(pipe.take(), "one\ntwo\n");
}

TEST(LogSinkTest, WhatWaitsIsWrittenWhenTheLoopIsLeft) {
    const Pipe pipe;
    const auto sink = std::make_shared<LogSink>(pipe.write_end());
    const auto logger = logger_of(sink);
    {
        boost::asio::io_context loop;
        const LogBatching batching(*sink, loop.get_executor());
        logger->info("one");
    }
    EXPECT_EQ(pipe.take(), "one\n");
    logger->info("two");
    EXPECT_EQ(pipe.take(), "two\n");
}

TEST(LogSinkTest, WarningsThatRepeatAreCountedAndLinesOfRequestsAreNot) {
    const Pipe pipe;
    {
        const auto sink = std::make_shared<LogSink>(pipe.write_end());
        const auto logger = logger_of(sink);
        for (int i = 0; i < 25; ++i) {
            logger->warn("event=broken replica=1");
            logger->info("event=request");
        }
        logger->critical("event=last");
    }
    const std::string text = pipe.take();
    const auto count = [&text](const std::string& line) {
        std::size_t found = 0;
        for (std::size_t at = text.find(line); at != std::string::npos;
             at = text.find(line, at + 1))
            ++found;
        return found;
    };
    EXPECT_EQ(count("event=broken replica=1\n"), 10U);
    EXPECT_EQ(count("event=request\n"), 25U);
    EXPECT_EQ(count("event=last\n"), 1U);
    EXPECT_EQ(count("event=log_repeated of=broken replica=1 lines=15 within_s=60\n"), 1U);
}

TEST(LogSinkTest, AReaderThatStopsHoldsNobodyAndHearsWhatHeMissed) {
    const Pipe pipe;
    std::uint64_t dropped = 0;
    boost::asio::io_context loop;
    const auto sink = std::make_shared<LogSink>(pipe.write_end());
    const auto logger = logger_of(sink);
    const LogBatching batching(*sink, loop.get_executor(),
                               [&](std::uint64_t count) { dropped += count; });
    const std::string line(1000, 'x');
    for (int i = 0; i < 2000; ++i)
        logger->warn(line);
    EXPECT_GT(dropped, 500U);
    EXPECT_LT(dropped, 1000U) << "a MiB of them waits";
    std::string text;
    for (std::string piece = pipe.take(); !piece.empty(); piece = pipe.take()) {
        text += piece;
        logger->flush();
    }
    EXPECT_EQ(text.find("event=log_resumed lines_dropped=" + std::to_string(dropped) + "\n") % 1001,
              0U)
        << "behind whole lines";
}

}  // namespace
}  // namespace router
