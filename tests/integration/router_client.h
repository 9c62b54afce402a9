// A client that shows what is on the wire: one connection, raw bytes, closing when it is told to.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

namespace fleet {

/// An answer as far as it was read.
struct Answer {
    int status = 0;
    std::string head;          // status line and fields
    std::string body;          // without chunk framing
    bool is_complete = false;  // the body ended as its framing promised
    bool is_closed = false;    // the server has closed the connection

    /// Empty when there is none; upper and lower case are the same.
    [[nodiscard]] std::string header(const std::string& name) const;
};

class RawClient {
public:
    explicit RawClient(int port);
    /// To a Unix socket; reads of one that nobody listens on find its end.
    explicit RawClient(const std::string& socket_path);
    ~RawClient();
    RawClient(const RawClient&) = delete;
    RawClient& operator=(const RawClient&) = delete;

    void post(const std::string& path, const std::string& body,
              const std::vector<std::string>& fields = {});
    /// A request without a body.
    void ask(const std::string& method, const std::string& path,
             const std::vector<std::string>& fields = {});
    void send(const std::string& bytes);

    /// Reads until the body is complete or the connection ends. A 429 or 503 without Retry-After
    /// fails the test, here and in all that follows.
    Answer read_answer();
    /// Reads until the server has closed the connection; the answer up to there.
    Answer read_to_end();
    /// Reads until the body has at least `bytes` bytes; false when it ended before.
    bool read_body_bytes(std::size_t bytes);

    /// FIN, and RST.
    void close();
    void reset();

private:
    bool read_more();
    Answer parse() const;

    int fd_ = -1;
    std::string received_;
    bool is_closed_ = false;
};

/// One request on its own connection, read to its end.
Answer post(int port, const std::string& path, const std::string& body,
            const std::vector<std::string>& fields = {});

/// One request over a Unix socket; status 0 when nobody listens there.
Answer ask_unix(const std::string& socket_path, const std::string& method, const std::string& path,
                const std::string& body = "");

/// One GET, the same.
Answer get(int port, const std::string& path, const std::vector<std::string>& fields = {});

/// Answers of many requests that are sent at once and read together, in order of `bodies`.
/// `cancel_after` (same size, or empty) ends a request that long after its start; its answer then
/// has status 0.
std::vector<Answer> post_all(int port, const std::string& path,
                             const std::vector<std::string>& bodies,
                             const std::vector<std::chrono::milliseconds>& cancel_after = {});

}  // namespace fleet
