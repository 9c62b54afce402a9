// What a launcher hands down beside the command line: a listening socket and a key, by descriptor.
#pragma once

#include <optional>
#include <string>

namespace replica::server {

/// The first socket of the LISTEN_FDS convention, when it is meant for this process.
std::optional<int> inherited_socket();

/// The key that `fd` holds: its text without surrounding whitespace, or, when it is not printable,
/// its bytes as hex digits. Closes `fd`. Throws std::runtime_error when there is none.
std::string read_internal_key(int fd);

}  // namespace replica::server
