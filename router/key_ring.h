// Who calls: the API keys in use, and the one that a request presents.
//
//   key file ─▶ KeyRing.replace ─▶ entries, each with its number in FairShare
//   request head ─▶ KeyRing.find ─▶ Caller        none: 401, the same for every cause
//
// A presented key is hashed and its digest compared with every entry, each comparison and their
// number independent of the key: the time an answer takes tells nothing about how near a guess was.
// A replaced ring keeps the numbers of names that stay, so their service and running requests go
// on. Decision thread only.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "proto/http_message.h"
#include "router/fairness.h"
#include "router/key_file.h"

namespace router {

/// Whose request it is. Kept by the request, so that a reload does not change it midway.
struct Caller {
    KeyId key = kAnonymousKey;
    std::string name;         // empty without keys
    int priority_min = -100;  // the most urgent it may be
};

class KeyRing {
public:
    /// `fair_share` gives the numbers and outlives the ring.
    explicit KeyRing(FairShare& fair_share)
        : fair_share_(fair_share), anonymous_(std::make_shared<const Caller>()) {}

    /// Takes these entries in place of all before. Without entries (never called, or called with
    /// none) no key is needed and everybody is anonymous.
    void replace(const std::vector<KeyEntry>& entries);

    [[nodiscard]] bool is_needed() const { return !keys_.empty(); }
    [[nodiscard]] std::size_t size() const { return keys_.size(); }

    /// Whose key the head presents as `Authorization: Bearer` or `x-api-key`; null: nobody's.
    /// Without entries the anonymous caller.
    [[nodiscard]] std::shared_ptr<const Caller> find(const proto::Headers& headers) const;
    /// The same for the key itself.
    [[nodiscard]] std::shared_ptr<const Caller> find(std::string_view presented) const;

    /// Callers in the order of the file, for the admin view.
    [[nodiscard]] std::vector<std::shared_ptr<const Caller>> callers() const;
    /// The entry of each caller, in the same order.
    [[nodiscard]] const std::vector<KeyEntry>& entries() const { return entries_; }

private:
    struct Key {
        Sha256 digest{};
        std::shared_ptr<const Caller> caller;
    };
    FairShare& fair_share_;
    std::shared_ptr<const Caller> anonymous_;
    std::vector<Key> keys_;
    std::vector<KeyEntry> entries_;
};

/// The one answer to a missing and to a wrong key.
[[nodiscard]] proto::HttpResponse unauthorized_response();

/// A server that others can reach needs keys, or somebody who says that it does not.
[[nodiscard]] bool is_loopback_address(std::string_view address);

}  // namespace router
