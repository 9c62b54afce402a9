// The router's word on the fleet, which the status command asks of its admin socket.
//
//   launcher: which processes live  ─┐
//   router: who makes progress,      ├──▶ one table, and one JSON
//           what waits, who was added┘
//
// The launcher sees a hung process late (silence_s); the router takes it out within seconds. Where
// both speak of a replica that lives, the router's doubt is what its requests feel. A router that
// does not answer leaves the launcher's word as it is, and the table says so.
#pragma once

#include <optional>
#include <string>

#include <nlohmann/json.hpp>

namespace deploy {

/// Bodies of GET /admin/replicas and GET /admin/queue.
struct RouterWord {
    nlohmann::json replicas;
    nlohmann::json queue;
};

/// Blocks at most some seconds. None: the socket is not there, silent, or says nonsense.
std::optional<RouterWord> ask_router(const std::string& admin_socket);

/// Adds it to the launcher's status: "router" per replica and "answers" to the router, "queue", and
/// "added_replicas", those that the launcher does not know; "running" and "waiting" count all.
void add_router_word(nlohmann::json& status, const std::optional<RouterWord>& word);

/// The router does not trust a replica whose process lives.
bool is_doubted(const nlohmann::json& replica);
/// What the table and `why` say of it: state, seconds since then, and the router's reason.
std::string shown_state(const nlohmann::json& replica);
double shown_since_s(const nlohmann::json& replica);
std::string shown_note(const nlohmann::json& replica);

}  // namespace deploy
