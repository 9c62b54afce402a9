// From tokens to the tree. Recursive descent with a depth limit; precedence from weak to strong:
// inline if, or, and, not, comparisons and `in`, + -, ~, * / // %, filters and tests, unary sign,
// postfix (`.`, `[]`, call).
#pragma once

#include <string_view>

#include "replica/chat/jinja/ast.h"

namespace replica::chat::jinja {

/// Nodes on the longest path of one expression; a chain such as a+b+c… counts one per operator.
inline constexpr int kExpressionHeightMax = 256;

/// Arguments of one call and parameters of one macro: matching them is quadratic.
inline constexpr std::size_t kArgumentsMax = 255;

/// Throws Fault(kSyntax) with the line, or Fault(kLimit) for what is nested too deeply.
Program parse_template(std::string_view source);

}  // namespace replica::chat::jinja
