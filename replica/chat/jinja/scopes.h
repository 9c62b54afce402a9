// The scopes of the interpreter, opened and closed by C++ blocks.
#pragma once

#include <string>

#include "replica/chat/jinja/interpreter.h"

namespace replica::chat::jinja {

/// A fresh innermost frame; its bindings go when it ends.
class Interpreter::FrameScope {
public:
    explicit FrameScope(Interpreter& interpreter)
        : interpreter_(interpreter),
          outer_begin_(interpreter.frame_begin_),
          was_top_level_(interpreter.is_top_level_),
          begin_(interpreter.bindings_.size()) {
        interpreter.frame_begin_ = begin_;
        interpreter.is_top_level_ = false;
    }
    ~FrameScope() {
        auto& bindings = interpreter_.bindings_;
        bindings.erase(bindings.begin() + static_cast<std::ptrdiff_t>(begin_), bindings.end());
        interpreter_.frame_begin_ = outer_begin_;
        interpreter_.is_top_level_ = was_top_level_;
    }
    FrameScope(const FrameScope&) = delete;
    FrameScope& operator=(const FrameScope&) = delete;

private:
    Interpreter& interpreter_;
    std::size_t outer_begin_;
    bool was_top_level_;
    std::size_t begin_;
};

/// The frame of a macro call: what lies below it is out of sight.
class Interpreter::CallScope {
public:
    explicit CallScope(Interpreter& interpreter)
        : interpreter_(interpreter), outer_base_(interpreter.call_base_), frame_(interpreter) {
        interpreter.call_base_ = interpreter.bindings_.size();
    }
    ~CallScope() { interpreter_.call_base_ = outer_base_; }
    CallScope(const CallScope&) = delete;
    CallScope& operator=(const CallScope&) = delete;

private:
    Interpreter& interpreter_;
    std::size_t outer_base_;
    FrameScope frame_;
};

/// One level of evaluation within another: bounds the C++ stack.
class Interpreter::DepthScope {
public:
    explicit DepthScope(int& depth) : depth_(depth) {
        if (depth_ >= kEvaluationDepthMax) {
            throw Fault(
                TemplateErrorKind::kLimit,
                "evaluation goes more than " + std::to_string(kEvaluationDepthMax) + " deep");
        }
        ++depth_;
    }
    ~DepthScope() { --depth_; }
    DepthScope(const DepthScope&) = delete;
    DepthScope& operator=(const DepthScope&) = delete;

private:
    int& depth_;
};

}  // namespace replica::chat::jinja
