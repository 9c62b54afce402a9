// regular_file: reads a file that an operator has named, without ever waiting for it.
//
// A name may stand for a pipe that nobody writes, or for a device without end; opening or reading
// such a thing would stop the thread that serves everybody. So only regular files are read.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include <tl/expected.hpp>

namespace proto {

/// The bytes of the file, at most `bytes_max`; otherwise why not ("No such file or directory", "it
/// is not a regular file", "it is longer than 1024 bytes"). Symbolic links are followed.
tl::expected<std::string, std::string> read_regular_file(const std::string& path,
                                                         std::size_t bytes_max);

/// Why read_regular_file() could not begin; none when it could. Reads nothing.
std::optional<std::string> regular_file_error(const std::string& path);

}  // namespace proto
