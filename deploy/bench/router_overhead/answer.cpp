#include "deploy/bench/router_overhead/answer.h"

#include <array>
#include <cstdio>

namespace deploy::overhead {

std::string mark_of(const Plan& plan) {
    std::array<char, 128> text{};
    std::snprintf(text.data(), text.size(),
                  "bench events=%u burst=%u gap_us=%u ttft_us=%u stream=%u;", plan.events,
                  plan.burst, plan.gap_us, plan.ttft_us, plan.stream);
    return text.data();
}

bool read_mark(std::string_view text, Plan& plan) {
    const std::size_t at = text.find("bench events=");
    if (at == std::string_view::npos) return false;
    const std::string mark(text.substr(at, 128));
    Plan read;
    const int count =
        std::sscanf(mark.c_str(), "bench events=%u burst=%u gap_us=%u ttft_us=%u stream=%u;",
                    &read.events, &read.burst, &read.gap_us, &read.ttft_us, &read.stream);
    if (count != 5 || read.events == 0 || read.events > kEventsMax || read.burst == 0) return false;
    plan = read;
    return true;
}

Answers::Answers() {
    begins_.reserve(kEventsMax + 1);
    for (std::size_t n = 0; n < kEventsMax; ++n) {
        begins_.push_back(text_.size());
        std::array<char, 8> word{};
        std::snprintf(word.data(), word.size(), "w%04zu", n);
        text_ +=
            R"(data: {"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1900000000,"model":"bench","system_fingerprint":"q-5f0c11aa","choices":[{"index":0,"delta":{"content":")";
        text_ += word.data();
        text_ += R"("},"finish_reason":null,"logprobs":null}]})";
        text_ += "\n\n";
    }
    begins_.push_back(text_.size());
}

std::string_view Answers::tail() {
    return "data: "
           R"({"id":"chatcmpl-bench","object":"chat.completion.chunk","created":1900000000,"model":"bench","system_fingerprint":"q-5f0c11aa","choices":[{"index":0,"delta":{},"finish_reason":"stop","logprobs":null}]})"
           "\n\ndata: [DONE]\n\n";
}

std::string Answers::plain(const Plan& plan) {
    std::string text =
        R"({"id":"chatcmpl-bench","object":"chat.completion","created":1900000000,"model":"bench","choices":[{"index":0,"message":{"role":"assistant","content":")";
    for (std::uint32_t n = 0; n < plan.events; ++n)
        text += "word ";
    text +=
        R"("},"finish_reason":"stop","logprobs":null}],"usage":{"prompt_tokens":1,"completion_tokens":)" +
        std::to_string(plan.events) + R"(,"total_tokens":)" + std::to_string(plan.events + 1) +
        "}}";
    return text;
}

}  // namespace deploy::overhead
