// The functions a template may call: namespace, raise_exception, range, strftime_now, dict.
#include <algorithm>
#include <ctime>

#include "replica/chat/jinja/arguments.h"

namespace replica::chat::jinja {

namespace {

constexpr std::string_view kFunctions[] = {"namespace", "raise_exception", "range", "strftime_now",
                                           "dict"};

Value call_namespace(Interpreter& interpreter, const CallArguments& arguments) {
    Namespace* const space = interpreter.new_namespace();
    if (arguments.positional.size() > 1) {
        fail_type("namespace expected at most 1 argument, got " +
                  std::to_string(arguments.positional.size()));
    }
    if (!arguments.positional.empty()) {
        const auto* mapping = arguments.positional[0].get_if<MappingPtr>();
        if (mapping == nullptr) fail_type("namespace() takes a mapping");
        for (const auto& [key, value] : (*mapping)->entries) {
            interpreter.budget().charge_elements(1);
            space->set(to_text(interpreter.budget(), key)->bytes, value);
        }
    }
    for (const auto& [name, value] : arguments.keyword)
        space->set(name, value);
    return space;
}

Value call_dict(Interpreter& interpreter, const CallArguments& arguments) {
    std::vector<std::pair<Value, Value>> entries;
    if (arguments.positional.size() > 1) {
        fail_type("dict expected at most 1 argument, got " +
                  std::to_string(arguments.positional.size()));
    }
    if (!arguments.positional.empty()) {
        const auto* mapping = arguments.positional[0].get_if<MappingPtr>();
        if (mapping == nullptr) fail_type("dict() takes a mapping");
        entries = (*mapping)->entries;
    }
    for (const auto& [name, value] : arguments.keyword)
        entries.emplace_back(make_text(name), value);
    return make_mapping(interpreter.budget(), std::move(entries));
}

Value call_range(Interpreter& interpreter, const CallArguments& arguments) {
    const Bound bound("range", arguments, {"start", "stop", "step"}, 1);
    for (std::size_t i = 0; i < 3; ++i) {
        if (bound.has(i)) require_defined(bound[i]);
    }
    Sequence range;
    range.kind = SequenceKind::kRange;
    range.range_start = bound.has(1) ? bound.integer(0, 0) : 0;
    range.range_stop = bound.has(1) ? bound.integer(1, 0) : bound.integer(0, 0);
    range.range_step = bound.integer(2, 1);
    if (range.range_step == 0) fail_type("range() arg 3 must not be zero");
    const bool is_up = range.range_step > 0;
    const std::int64_t low = is_up ? range.range_start : range.range_stop;
    const std::int64_t high = is_up ? range.range_stop : range.range_start;
    // The unsigned difference is exact even when the signed one would not fit.
    const std::uint64_t distance =
        low < high ? static_cast<std::uint64_t>(high) - static_cast<std::uint64_t>(low) : 0;
    const std::uint64_t stride = is_up ? static_cast<std::uint64_t>(range.range_step)
                                       : 0 - static_cast<std::uint64_t>(range.range_step);
    const std::uint64_t count = distance == 0 ? 0 : (distance - 1) / stride + 1;
    const std::int64_t count_max = interpreter.budget().limits().range_max;
    if (count > static_cast<std::uint64_t>(count_max)) {
        throw Fault(TemplateErrorKind::kLimit,
                    "Range too big. The sandbox blocks ranges larger than MAX_RANGE (" +
                        std::to_string(count_max) + ").");
    }
    interpreter.budget().charge_elements(count);
    range.items.reserve(count);
    for (std::uint64_t i = 0; i < count; ++i) {
        range.items.emplace_back(range.range_start +
                                 static_cast<std::int64_t>(i) * range.range_step);
    }
    return std::make_shared<const Sequence>(std::move(range));
}

/// One conversion such as %Y or %-d; the C library's words, which are English unless the process
/// sets a locale, and ours never does.
std::string format_time(const std::tm& time, const std::string& conversion) {
    if (conversion == "%f") return "000000";
    if (conversion == "%z" || conversion == "%Z") return "";  // the clock has no zone
    char buffer[128];
    const std::size_t size = std::strftime(buffer, sizeof buffer, conversion.c_str(), &time);
    return {buffer, size};
}

std::tm broken_down(std::chrono::local_seconds now) {
    const auto day = std::chrono::floor<std::chrono::days>(now);
    const std::chrono::year_month_day date(day);
    const std::chrono::hh_mm_ss time(now - day);
    std::tm result{};
    result.tm_year = static_cast<int>(date.year()) - 1900;
    result.tm_mon = static_cast<int>(static_cast<unsigned>(date.month())) - 1;
    result.tm_mday = static_cast<int>(static_cast<unsigned>(date.day()));
    result.tm_hour = static_cast<int>(time.hours().count());
    result.tm_min = static_cast<int>(time.minutes().count());
    result.tm_sec = static_cast<int>(time.seconds().count());
    result.tm_wday = static_cast<int>(std::chrono::weekday(day).c_encoding());
    const std::chrono::local_days first_of_year(date.year() / std::chrono::January / 1);
    result.tm_yday = static_cast<int>((day - first_of_year).count());
    return result;
}

Value call_strftime(Interpreter& interpreter, const CallArguments& arguments) {
    const Bound bound("strftime_now", arguments, {"format"}, 1);
    require_defined(bound[0]);
    const Text& format = *bound.text(0);
    const std::tm time = broken_down(interpreter.options().now);
    TextBuilder out(interpreter.budget());
    const std::string& bytes = format.bytes;
    for (std::size_t at = 0; at < bytes.size();) {
        std::size_t end = at + 1;
        if (bytes[at] != '%') {
            end = std::min(bytes.find('%', at), bytes.size());
            out.append_slice(format, {at, end});
        } else {
            if (end < bytes.size() && (bytes[end] == '-' || bytes[end] == '_')) ++end;
            if (end < bytes.size()) ++end;
            interpreter.budget().charge_nodes(1);
            out.append(format_time(time, bytes.substr(at, end - at)));
        }
        at = end;
    }
    return out.finish();
}

}  // namespace

bool is_function(std::string_view name) {
    return std::find(std::begin(kFunctions), std::end(kFunctions), name) != std::end(kFunctions);
}

Value call_function(Interpreter& interpreter, std::string_view name,
                    const CallArguments& arguments) {
    if (name == "namespace") return call_namespace(interpreter, arguments);
    if (name == "range") return call_range(interpreter, arguments);
    if (name == "strftime_now") return call_strftime(interpreter, arguments);
    if (name == "dict") return call_dict(interpreter, arguments);
    const Bound bound("raise_exception", arguments, {"message"}, 1);
    throw Fault(TemplateErrorKind::kRaised, to_text(interpreter.budget(), bound[0])->bytes);
}

}  // namespace replica::chat::jinja
