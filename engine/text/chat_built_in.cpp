#include "engine/text/chat_built_in.h"

namespace kvant {
namespace {

constexpr BuiltInTemplate kBuiltInTemplates[] = {
    {"chatml", R"({% for message in messages %}
{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endfor %}
{{ '<|im_start|>assistant\n' if add_generation_prompt }})"},
    {"llama2", R"({% set ns = namespace(system='') %}
{% for message in messages %}
{% if message.role == 'system' %}
{% set ns.system = '<<SYS>>\n' + message.content + '\n<</SYS>>\n\n' %}
{% elif message.role == 'user' %}
{{- bos_token + '[INST] ' + ns.system + message.content + ' [/INST]' }}
{%- set ns.system = '' %}
{% else %}
{{- ' ' + message.content + ' ' + eos_token }}
{%- endif %}
{% endfor %})"},
    {"llama3", R"({{ bos_token }}
{%- for message in messages %}
{{- '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' }}
{{- message.content | trim + '<|eot_id|>' }}
{%- endfor %}
{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' if add_generation_prompt }})"},
    {"gemma-it", R"({{ bos_token }}
{%- set ns = namespace(system='') %}
{%- for message in messages %}
{%- if message.role == 'system' %}
{%- set ns.system = message.content | trim + '\n\n' %}
{%- else %}
{{- '<start_of_turn>' + ('model' if message.role == 'assistant' else message.role) + '\n' }}
{{- ns.system + message.content | trim + '<end_of_turn>\n' }}
{%- set ns.system = '' %}
{%- endif %}
{%- endfor %}
{{- '<start_of_turn>model\n' if add_generation_prompt }})"},
    {"zephyr", R"({% for message in messages %}
{{ '<|' + message.role + '|>\n' + message.content + eos_token + '\n' }}
{%- endfor %}
{{ '<|assistant|>\n' if add_generation_prompt }})"},
};

}  // namespace

std::span<const BuiltInTemplate> BuiltInTemplates() { return kBuiltInTemplates; }

}  // namespace kvant
