// Attributes, items and slices. A miss is an undefined value that remembers what was missing.
#include <algorithm>
#include <limits>

#include "replica/chat/jinja/interpreter.h"
#include "replica/chat/jinja/unicode.h"

namespace replica::chat::jinja {

namespace {

std::string object_name(const Value& object) {
    return object.is_none() ? "None" : type_name(object) + " object";
}

Value missing_attribute(const Value& object, std::string_view name) {
    return undefined(repr_of(object_name(object)) + " has no attribute " + repr_of(name));
}

Value missing_element(Budget& budget, const Value& object, const Value& index) {
    TextBuilder message(budget);
    message.append(object_name(object) + " has no element ");
    append_repr(budget, message, index);
    return undefined(message.finish()->bytes);
}

/// Every Python object has attributes such as __class__; none is within reach.
bool is_special_name(std::string_view name) {
    return name.size() > 4 && name.starts_with("__") && name.ends_with("__");
}

std::optional<Value> loop_attribute(const Loop& loop, std::string_view name) {
    const auto index = static_cast<std::int64_t>(loop.index);
    const auto length = static_cast<std::int64_t>(loop.items->items.size());
    if (name == "index") return index + 1;
    if (name == "index0") return index;
    if (name == "first") return index == 0;
    if (name == "last") return index + 1 == length;
    if (name == "length") return length;
    if (name == "revindex") return length - index;
    if (name == "revindex0") return length - index - 1;
    if (name == "depth") return static_cast<std::int64_t>(loop.depth);
    if (name == "depth0") return static_cast<std::int64_t>(loop.depth) - 1;
    if (name == "previtem") {
        if (loop.index == 0) return undefined("there is no previous item");
        return loop.items->items[loop.index - 1];
    }
    if (name == "nextitem") {
        if (index + 1 >= length) return undefined("there is no next item");
        return loop.items->items[loop.index + 1];
    }
    return std::nullopt;
}

/// Attributes and methods of anything, without the keys of a mapping.
std::optional<Value> own_attribute(const Value& object, std::string_view name) {
    if (auto method = find_method(object, name)) return method;
    if (const auto* space = object.get_if<Namespace*>()) {
        const Value* const value = (*space)->find(name);
        if (value != nullptr) return *value;
    }
    if (const auto* loop = object.get_if<Loop*>()) return loop_attribute(**loop, name);
    return std::nullopt;
}

Value unsafe_or_missing(const Value& object, std::string_view name) {
    if (!is_special_name(name)) return missing_attribute(object, name);
    return undefined("access to attribute " + repr_of(name) + " of " + repr_of(type_name(object)) +
                         " object is unsafe.",
                     TemplateErrorKind::kSecurity);
}

/// The position a Python index means; nothing when it is out of range.
std::optional<std::size_t> resolve_index(std::int64_t index, std::size_t size) {
    const auto length = static_cast<std::int64_t>(size);
    if (index < 0) index += length;
    if (index < 0 || index >= length) return std::nullopt;
    return static_cast<std::size_t>(index);
}

std::optional<Value> item_of_text(Budget& budget, const TextPtr& text, std::int64_t index) {
    budget.charge_bytes(text->ascii ? 0 : text->bytes.size());
    const auto position = resolve_index(index, length_in_characters(*text));
    if (!position) return std::nullopt;
    const std::size_t begin = byte_of_character(*text, *position);
    return slice_bytes(budget, text, {begin, begin + decode_at(text->bytes, begin).bytes});
}

/// The positions a slice takes, as Python's slice.indices: `count` of them from `begin` by `step`,
/// none at or beyond `end`.
struct SliceRange {
    std::int64_t begin = 0, end = 0, step = 1;
    std::size_t count = 0;
};

SliceRange resolve_slice(std::optional<std::int64_t> begin, std::optional<std::int64_t> end,
                         std::int64_t step, std::size_t size) {
    const auto length = static_cast<std::int64_t>(size);
    const bool is_forward = step > 0;
    const std::int64_t lowest = is_forward ? 0 : -1;
    const std::int64_t highest = is_forward ? length : length - 1;
    const auto clamp = [&](std::optional<std::int64_t> bound, std::int64_t otherwise) {
        if (!bound) return otherwise;
        return std::clamp(*bound < 0 ? *bound + length : *bound, lowest, highest);
    };
    SliceRange range{clamp(begin, is_forward ? lowest : highest),
                     clamp(end, is_forward ? highest : lowest), step, 0};
    const std::int64_t distance = is_forward ? range.end - range.begin : range.begin - range.end;
    const std::int64_t stride = is_forward ? step : -step;
    if (distance > 0) range.count = static_cast<std::size_t>((distance - 1) / stride) + 1;
    return range;
}

Value slice_of_text(Budget& budget, const TextPtr& text, const SliceRange& range) {
    if (range.count == 0) return empty_text();
    const auto begin = static_cast<std::size_t>(range.begin);
    budget.charge_bytes(text->bytes.size());
    if (range.step == 1) {
        return slice_bytes(
            budget, text,
            {byte_of_character(*text, begin), byte_of_character(*text, begin + range.count)});
    }
    if (range.step == -1 && range.count == length_in_characters(*text)) {
        return reversed(budget, *text);
    }
    std::vector<TextPtr> all = characters(budget, text);
    TextBuilder builder(budget);
    std::int64_t at = range.begin;
    for (std::size_t i = 0; i < range.count; ++i, at += range.step) {
        builder.append(*all[static_cast<std::size_t>(at)]);
    }
    return builder.finish();
}

Value slice_of_range(Budget& budget, const Sequence& sequence, const SliceRange& range) {
    auto result = std::make_shared<Sequence>();
    result->kind = SequenceKind::kRange;
    result->range_start = sequence.range_start + range.begin * sequence.range_step;
    result->range_stop = sequence.range_start + range.end * sequence.range_step;
    result->range_step = sequence.range_step * range.step;
    budget.charge_elements(range.count);
    std::int64_t at = range.begin;
    for (std::size_t i = 0; i < range.count; ++i, at += range.step) {
        result->items.push_back(sequence.items[static_cast<std::size_t>(at)]);
    }
    return SequencePtr(std::move(result));
}

Value slice_of_sequence(Budget& budget, const Sequence& sequence, const SliceRange& range) {
    if (sequence.kind == SequenceKind::kRange) return slice_of_range(budget, sequence, range);
    std::vector<Value> items;
    budget.charge_elements(range.count);
    items.reserve(range.count);
    std::int64_t at = range.begin;
    for (std::size_t i = 0; i < range.count; ++i, at += range.step) {
        items.push_back(sequence.items[static_cast<std::size_t>(at)]);
    }
    return make_sequence(budget, sequence.kind, std::move(items));
}

}  // namespace

Value get_attribute(Budget&, const Value& object, const TextPtr& name) {
    require_defined(object);
    const std::string& spelling = name->bytes;
    if (auto attribute = own_attribute(object, spelling)) return std::move(*attribute);
    if (const auto* mapping = object.get_if<MappingPtr>()) {
        if (const Value* value = (*mapping)->find(std::string_view(spelling))) return *value;
    }
    return unsafe_or_missing(object, spelling);
}

Value get_item(Budget& budget, const Value& object, const Value& index) {
    require_defined(object);
    if (const auto* mapping = object.get_if<MappingPtr>(); mapping != nullptr && hash_key(index)) {
        if (const Value* value = (*mapping)->find(index)) return *value;
    }
    if (const auto integer = index.as_integer()) {
        if (const auto* text = object.get_if<TextPtr>()) {
            if (auto item = item_of_text(budget, *text, *integer)) return std::move(*item);
        }
        const auto* sequence = object.get_if<SequencePtr>();
        if (sequence != nullptr && (*sequence)->is_indexable()) {
            const auto position = resolve_index(*integer, (*sequence)->items.size());
            if (position) return (*sequence)->items[*position];
        }
    }
    if (const auto* name = index.get_if<TextPtr>()) {
        if (auto attribute = own_attribute(object, (*name)->bytes)) return std::move(*attribute);
        return unsafe_or_missing(object, (*name)->bytes);
    }
    return missing_element(budget, object, index);
}

Value get_slice(Budget& budget, const Value& object, const SliceBounds& bounds) {
    require_defined(object);
    const auto* text = object.get_if<TextPtr>();
    const auto* sequence = object.get_if<SequencePtr>();
    const bool can_be_sliced =
        text != nullptr || (sequence != nullptr && (*sequence)->is_indexable());
    if (!can_be_sliced) fail_type("'" + type_name(object) + "' object is not subscriptable");
    for (const Value* bound : {&bounds.begin, &bounds.end, &bounds.step}) {
        if (!bound->is_none() && !bound->as_integer()) {
            fail_type("slice indices must be integers or None");
        }
    }
    const std::int64_t step = bounds.step.as_integer().value_or(1);
    if (step == 0) fail_type("slice step cannot be zero");
    const std::size_t size =
        text != nullptr ? length_in_characters(**text) : (*sequence)->items.size();
    const SliceRange range =
        resolve_slice(bounds.begin.as_integer(), bounds.end.as_integer(),
                      std::max(step, -std::numeric_limits<std::int64_t>::max()), size);
    if (text != nullptr) return slice_of_text(budget, *text, range);
    return slice_of_sequence(budget, **sequence, range);
}

}  // namespace replica::chat::jinja
