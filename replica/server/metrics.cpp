#include "replica/server/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include "replica/server/metrics_snapshot.h"

namespace replica::server {
namespace {

using prometheus::Counter;
using prometheus::Family;
using prometheus::Histogram;
using Buckets = Histogram::BucketBoundaries;

/// Bounds that stop at 30 s would hide a long prefill.
const Buckets& prefill_buckets() {
    static const Buckets buckets = {.02, .05, .1, .2,  .5,  1,   2,    5,    10,
                                    20,  40,  80, 160, 320, 640, 1280, 2560, 3600};
    return buckets;
}
const Buckets& token_buckets() {
    static const Buckets buckets = {.002, .005, .01, .015, .02, .03, .04, .05,
                                    .075, .1,   .15, .2,   .3,  .5,  1,   2.5};
    return buckets;
}
const Buckets& duration_buckets() {
    static const Buckets buckets = {.3,  1,   2.5, 5,    10,   30,   60,
                                    120, 300, 600, 1200, 2400, 3600, 7680};
    return buckets;
}
const Buckets& step_buckets() {
    static const Buckets buckets = {.001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30};
    return buckets;
}
const Buckets& count_buckets() {  // a 1-2-5 series to the largest context we serve
    static const Buckets buckets = {1,    2,    5,    10,    20,    50,    100,    200,    500,
                                    1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000};
    return buckets;
}
const Buckets& batch_buckets() {
    static const Buckets buckets = {1, 2, 4, 8, 16, 32, 64, 128, 256};
    return buckets;
}

}  // namespace

std::string_view phase_name(RequestPhase phase) {
    switch (phase) {
        case RequestPhase::kPrepare:
            return "prepare";
        case RequestPhase::kQueue:
            return "queue";
        case RequestPhase::kPrefill:
            return "prefill";
        case RequestPhase::kDecode:
            return "decode";
    }
    return "decode";
}

struct Metrics::Families {
    Families(int replica_index, const std::string& model)
        : constant_labels{{"replica", std::to_string(replica_index)}, {"model", model}} {}

    prometheus::Registry registry;
    prometheus::Labels constant_labels;

    Family<Counter>& counters(const std::string& name, const std::string& help) {
        return prometheus::BuildCounter()
            .Name("quadriga_replica_" + name)
            .Help(help)
            .Labels(constant_labels)
            .Register(registry);
    }
    Counter& counter(const std::string& name, const std::string& help) {
        return counters(name, help).Add({});
    }
    Histogram& histogram(const std::string& name, const std::string& help, const Buckets& buckets,
                         const prometheus::Labels& labels = {}) {
        return prometheus::BuildHistogram()
            .Name("quadriga_replica_" + name)
            .Help(help)
            .Labels(constant_labels)
            .Register(registry)
            .Add(labels, buckets);
    }

    Family<Counter>& requests = counters("requests_total", "Answers, by endpoint and status.");
    Family<Counter>& finished =
        counters("requests_finished_total", "Choices that ended, by reason.");
    Family<Counter>& rejected =
        counters("requests_rejected_total", "Requests refused before the engine, by reason.");
    Counter& unknown_fields =
        counter("unknown_fields_total", "Request fields that were not known.");
    Family<Counter>& disconnects =
        counters("client_disconnects_total", "Clients that left before their answer was complete.");
    Histogram& cancel_to_free = histogram(
        "cancel_to_free_seconds", "From a cancellation to its blocks being free.", step_buckets());
    Histogram& first_token = histogram("time_to_first_token_seconds",
                                       "From arrival to the first token.", prefill_buckets());
    Histogram& inter_token = histogram("inter_token_latency_seconds",
                                       "Between two tokens of a sequence.", token_buckets());
    Histogram& per_output_token =
        histogram("time_per_output_token_seconds",
                  "Decode time of a sequence over its tokens but the first.", token_buckets());
    Histogram& queue =
        histogram("queue_seconds", "From acceptance to the first step.", prefill_buckets());
    Histogram& prefill =
        histogram("prefill_seconds", "From the first step to the first token.", prefill_buckets());
    Histogram& decode =
        histogram("decode_seconds", "From the first token to the last.", duration_buckets());
    Histogram& request =
        histogram("request_seconds", "From arrival to the end of a choice.", duration_buckets());
    Histogram& prompt_tokens =
        histogram("request_prompt_tokens", "Prompt tokens of a choice.", count_buckets());
    Histogram& generation_tokens =
        histogram("request_generation_tokens", "Sampled tokens of a choice.", count_buckets());
    Family<Counter>& steps = counters("steps_total", "Forward passes, by what they did.");
    Histogram& step_decode =
        histogram("step_seconds", "Time of a forward pass.", step_buckets(), {{"phase", "decode"}});
    Histogram& step_prefill = histogram("step_seconds", "Time of a forward pass.", step_buckets(),
                                        {{"phase", "prefill"}});
    Histogram& step_tokens = histogram("step_tokens", "Tokens of a forward pass.", count_buckets());
    Histogram& batch_sequences =
        histogram("batch_sequences", "Sequences of a forward pass.", batch_buckets());
    Family<Counter>& fallbacks =
        counters("output_parse_fallback_total", "Malformed output that became text, by kind.");
};

Metrics::Metrics(int replica_index, const std::string& model)
    : families_(std::make_unique<Families>(replica_index, model)) {}
Metrics::~Metrics() = default;

void Metrics::observe_step(const StepStats& stats) {
    // A step with prompt rows counts as prefill: they are what makes it long.
    const bool is_prefill = stats.prefill_rows > 0;
    families_->steps.Add({{"phase", is_prefill ? "prefill" : "decode"}}).Increment();
    (is_prefill ? families_->step_prefill : families_->step_decode).Observe(stats.duration.count());
    families_->step_tokens.Observe(stats.decode_rows + stats.prefill_rows);
    families_->batch_sequences.Observe(stats.sequences);
}

void Metrics::observe_first_token(std::chrono::duration<double> since_arrival) {
    families_->first_token.Observe(since_arrival.count());
}

void Metrics::observe_inter_token(std::chrono::duration<double> since_last) {
    families_->inter_token.Observe(since_last.count());
}

void Metrics::count_request(std::string_view endpoint, int status) {
    families_->requests.Add({{"endpoint", std::string(endpoint)}, {"code", std::to_string(status)}})
        .Increment();
}

void Metrics::count_rejected(std::string_view reason) {
    families_->rejected.Add({{"reason", std::string(reason)}}).Increment();
}

void Metrics::count_unknown_fields(std::size_t count) {
    families_->unknown_fields.Increment(static_cast<double>(count));
}

void Metrics::count_disconnect(RequestPhase phase) {
    families_->disconnects.Add({{"phase", std::string(phase_name(phase))}}).Increment();
}

void Metrics::observe_cancel_to_free(std::chrono::duration<double> time) {
    families_->cancel_to_free.Observe(time.count());
}

void Metrics::observe_finished(const ChoiceEnd& end, std::chrono::duration<double> request_time) {
    families_->finished.Add({{"reason", end.finish_reason}}).Increment();
    families_->queue.Observe(end.timings.queue_ms / 1e3);
    families_->request.Observe(request_time.count());
    families_->prompt_tokens.Observe(static_cast<double>(end.prompt_tokens));
    families_->generation_tokens.Observe(static_cast<double>(end.completion_tokens));
    if (end.completion_tokens > 0) {
        families_->prefill.Observe(end.timings.prefill_ms / 1e3);
        families_->decode.Observe(end.timings.decode_ms / 1e3);
    }
    if (end.completion_tokens > 1) {
        families_->per_output_token.Observe(end.timings.decode_ms / 1e3 /
                                            static_cast<double>(end.completion_tokens - 1));
    }
    for (const auto& [kind, count] : end.parse_fallbacks) {
        families_->fallbacks.Add({{"kind", kind}}).Increment(static_cast<double>(count));
    }
}

std::string Metrics::text(const MetricsSnapshot& snapshot) const {
    std::vector<prometheus::MetricFamily> all = families_->registry.Collect();
    append_snapshot(snapshot, families_->constant_labels, all);
    return prometheus::TextSerializer().Serialize(all);
}

}  // namespace replica::server
