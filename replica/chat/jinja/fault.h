// How an error leaves the interpreter: thrown where it is found, caught in Template::compile or
// Template::render, which return it as a value. It never crosses those two.
#pragma once

#include <exception>
#include <string>
#include <utility>

#include "replica/chat/template.h"

namespace replica::chat::jinja {

class Fault : public std::exception {
public:
    /// Line 0 means: the line of the node being evaluated.
    Fault(TemplateErrorKind kind, std::string message, int line = 0)
        : error_{kind, std::move(message), line} {}

    const char* what() const noexcept override { return error_.message.c_str(); }
    const TemplateError& error() const { return error_; }

private:
    TemplateError error_;
};

[[noreturn]] inline void fail_type(std::string message) {
    throw Fault(TemplateErrorKind::kType, std::move(message));
}

}  // namespace replica::chat::jinja
