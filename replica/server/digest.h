// SHA-256, as hex digits.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace replica::server {

class Sha256 {
public:
    Sha256();
    ~Sha256();
    Sha256(const Sha256&) = delete;
    Sha256& operator=(const Sha256&) = delete;

    void update(std::string_view text);
    void update(std::span<const std::byte> bytes);
    /// 64 lower-case hex digits; nothing may follow.
    std::string hex();

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace replica::server
