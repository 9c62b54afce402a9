// free_string: gives back what a string has taken. Assigning an empty one does not: the characters
// are copied into the memory that is there, which stays as large as it was.
#pragma once

#include <string>

namespace proto {

inline void free_string(std::string& text) {
    std::string().swap(text);
}

}  // namespace proto
