#include "replica/model/buffers.h"

#include <algorithm>
#include <array>

#include "replica/model/saturated.h"

namespace replica {
namespace {

struct BufferWidths {
    std::int64_t in = 0;     // widest stacked projection
    std::int64_t mixed = 0;  // widest mixer output
    std::int64_t ff = 0;     // widest F
};

BufferWidths buffer_widths(const ModelConfig& config) {
    BufferWidths widths;
    const auto add = [&](const LayerConfig& layer) {
        widths.ff = std::max<std::int64_t>(widths.ff, layer.ff_width);
        if (layer.kind == LayerKind::kDeltaNet) {
            const DeltaNetConfig& net = *config.delta_net;
            widths.in = std::max<std::int64_t>(
                widths.in, net.conv_dim() + net.value_dim() + 2 * net.value_heads);
            widths.mixed = std::max<std::int64_t>(widths.mixed, net.value_dim());
        } else {
            const std::int64_t q = std::int64_t{config.head_dim} * layer.heads;
            const std::int64_t kv = std::int64_t{config.head_dim} * layer.kv_heads;
            widths.in = std::max(widths.in, q * (config.has_output_gate ? 2 : 1) + 2 * kv);
            widths.mixed = std::max(widths.mixed, q);
        }
    };
    std::ranges::for_each(config.layers, add);
    std::ranges::for_each(config.mtp_layers, add);
    return widths;
}

/// Calls `use(member, rows, columns)` for every buffer.
template <class Use>
void for_each_buffer(const ModelConfig& config, const MemoryPlan& plan, Use use) {
    const BufferWidths widths = buffer_widths(config);
    const kernels::StepLimits& limits = plan.limits.step;
    const std::int64_t kept_rows =
        (std::int64_t{plan.limits.state_slots} + 1) * plan.limits.kept_rows;
    use(&Activations::x, limits.rows, config.width);
    use(&Activations::in, limits.rows, widths.in);
    use(&Activations::mixed, limits.rows, widths.mixed);
    use(&Activations::ff, limits.rows, widths.ff);
    use(&Activations::hidden, limits.rows + kept_rows, config.width);
    use(&Activations::logits, limits.logit_rows, config.vocabulary);
    if (!plan.has_mtp) return;
    use(&Activations::joined, limits.rows, 2 * std::int64_t{config.width});
    use(&Activations::mtp_hidden, limits.rows, config.width);
}

LayerMemory make_layer_memory(kernels::Backend& backend, const ModelConfig& config,
                              const LayerConfig& layer, const MemoryPlan& plan) {
    LayerMemory memory;
    if (layer.kind == LayerKind::kAttention) {
        const std::array<std::int64_t, 4> pages{plan.limits.blocks_total, layer.kv_heads,
                                                plan.limits.block_tokens, config.head_dim};
        memory.kv.k = backend.allocate(plan.kv_dtype, pages);
        memory.kv.v = backend.allocate(plan.kv_dtype, pages);
        return memory;
    }
    const DeltaNetConfig& net = *config.delta_net;
    const std::int64_t slots = std::int64_t{plan.limits.state_slots} + 1;  // slot 0 is scratch
    memory.state = backend.allocate(
        kernels::DType::kF32,
        std::array<std::int64_t, 4>{slots, net.value_heads, net.state_size, net.state_size});
    memory.conv_ring =
        backend.allocate(kernels::DType::kF32,
                         std::array<std::int64_t, 3>{slots, plan.conv_ring_rows, net.conv_dim()});
    if (plan.limits.draft_tokens_max > 0) {
        memory.replay =
            backend.allocate(kernels::DType::kF32,
                             std::array<std::int64_t, 3>{slots, 1 + plan.limits.draft_tokens_max,
                                                         replay_row_values(net)});
    }
    return memory;
}

}  // namespace

std::int64_t replay_row_values(const DeltaNetConfig& net) {
    return std::int64_t{net.key_dim()} + net.value_dim() + net.value_heads;
}

std::uint64_t buffer_bytes(const ModelConfig& config, const MemoryPlan& plan) {
    Saturated bytes = 0;
    for_each_buffer(config, plan, [&](auto, std::int64_t rows, std::int64_t columns) {
        bytes = bytes + Saturated(rows) * columns * sizeof(float);
    });
    return bytes.value();
}

Activations make_activations(kernels::Backend& backend, const ModelConfig& config,
                             const MemoryPlan& plan) {
    Activations buffers;
    for_each_buffer(config, plan, [&](auto member, std::int64_t rows, std::int64_t columns) {
        buffers.*member = backend.allocate(kernels::DType::kF32, std::array{rows, columns});
    });
    return buffers;
}

ModelMemory make_model_memory(kernels::Backend& backend, const ModelConfig& config,
                              const MemoryPlan& plan) {
    ModelMemory memory;
    for (const LayerConfig& layer : config.layers) {
        memory.layers.push_back(make_layer_memory(backend, config, layer, plan));
    }
    if (!plan.has_mtp) return memory;
    for (const LayerConfig& layer : config.mtp_layers) {
        memory.mtp.push_back(make_layer_memory(backend, config, layer, plan));
    }
    return memory;
}

}  // namespace replica
