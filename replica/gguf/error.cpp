#include "replica/gguf/error.h"

#include <algorithm>

namespace replica {

std::string printable(std::string_view text, std::size_t bytes_max) {
    std::string result(text.substr(0, bytes_max));
    std::ranges::replace_if(
        result, [](char c) { return c < 0x20 || c > 0x7E; }, '?');
    return result;
}

}  // namespace replica
