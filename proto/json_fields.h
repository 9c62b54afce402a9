// json_fields: plain structs from the JSON that our own processes exchange. (Requests of clients
// are read by the field table, request_fields.cpp, which knows ranges and more.)
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "proto/error.h"
#include "proto/json.h"
#include "proto/status.h"

namespace proto {

/// Copies members of one object into typed variables and keeps the first failure.
class FieldReader {
public:
    explicit FieldReader(const Json& object) : object_(object) {}

    /// Leaves `out` as it is when the member is absent or null.
    template <class T>
    void read(const char* name, T& out) {
        take(name, out, false);
    }
    template <class T>
    void require(const char* name, T& out) {
        take(name, out, true);
    }

    /// The same for a number that must lie within `least` and `most`, both included.
    template <class T>
    void read_between(const char* name, T& out, std::type_identity_t<T> least,
                      std::type_identity_t<T> most) {
        T value = out;
        read(name, value);
        if (value >= least && value <= most) {
            out = value;
        } else {
            note(name, ErrorCode::kInvalidValue);
        }
    }

    template <class T>
    Result<T> result(T value) {
        if (!failed_param_.empty()) {
            return fail(failed_code_, "The member '" + failed_param_ + "' is missing or wrong.",
                        failed_param_);
        }
        return value;
    }

private:
    template <class T>
    void take(const char* name, T& out, bool required) {
        const auto member = object_.find(name);
        if (member == object_.end() || member->is_null()) {
            if (required) note(name, ErrorCode::kMissingRequiredParameter);
        } else if (!store(*member, out)) {
            note(name, ErrorCode::kInvalidType);
        }
    }

    void note(const char* name, ErrorCode code) {
        if (!failed_param_.empty()) return;
        failed_param_ = name;
        failed_code_ = code;
    }

    static bool store(const Json& json, bool& out) {
        if (!json.is_boolean()) return false;
        out = json.get<bool>();
        return true;
    }
    static bool store(const Json& json, std::string& out) {
        if (!json.is_string()) return false;
        out = json.get<std::string>();
        return true;
    }
    static bool store(const Json& json, double& out) {
        if (!json.is_number()) return false;
        out = json.get<double>();
        return true;
    }
    static bool store(const Json& json, ReplicaState& out) {
        if (!json.is_string()) return false;
        const auto state = replica_state_from_name(json.get_ref<const std::string&>());
        if (state) out = *state;
        return state.has_value();
    }
    template <std::integral T>
    static bool store(const Json& json, T& out) {
        if (json.is_number_unsigned()) {
            const auto value = json.get<std::uint64_t>();
            if (!std::in_range<T>(value)) return false;
            out = static_cast<T>(value);
            return true;
        }
        if (!json.is_number_integer()) return false;
        const auto value = json.get<std::int64_t>();
        if (!std::in_range<T>(value)) return false;
        out = static_cast<T>(value);
        return true;
    }

    const Json& object_;
    std::string failed_param_;
    ErrorCode failed_code_ = ErrorCode::kInvalidType;
};

}  // namespace proto
