// What the launcher sets of its children itself. A key of the table [router], or an argument in
// router_args or replica_args, that does so again would have no effect or break the fleet, so it is
// refused where it stands. Tests hold the lists complete against what children are really given.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace deploy {

enum class ChildProgram { kRouter, kReplica };

struct OwnedKey {
    std::string why;
    std::string fix;
};

/// None when `key` ("admin_socket", as in the table) is free to be set.
std::optional<OwnedKey> owned_by_launcher(ChildProgram program, std::string_view key);

/// Of an argument: "--admin-socket=x" -> "admin_socket"; empty when it is no flag but a value.
std::string key_of_argument(std::string_view argument);

/// "--admin-socket" for "admin_socket".
std::string flag_of_key(std::string_view key);

}  // namespace deploy
