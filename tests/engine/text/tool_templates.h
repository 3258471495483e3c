// Templates of chats with tools, written for tests: each renders calls in the way of one family of
// models. The templates of models are in shared/chat-templates.
#pragma once

#include <string_view>

namespace kvant::test {

struct ToolTemplate {
  std::string_view format;  // the name under which it is detected
  std::string_view end;     // what an answer ends with in the rendered text
  std::string_view source;
};

// Two tools of which one has no arguments.
inline constexpr const char* kOrderTools = R"([
  {"type": "function", "function": {"name": "order", "parameters": {"type": "object",
    "properties": {"size": {"type": "string", "enum": ["small", "large"]},
                   "count": {"type": "integer", "minimum": 1, "maximum": 99},
                   "hot": {"type": "boolean"}},
    "required": ["size", "count"], "additionalProperties": false}}},
  {"type": "function", "function": {"name": "stop"}}])";

inline constexpr ToolTemplate kToolTemplates[] = {
    {"qwen3-coder", "<|im_end|>\n", R"({%- if tools %}<tools>{{ tools | tojson }}</tools>
{% endif %}
{%- for m in messages %}
{{- '<|im_start|>' + m.role + '\n' + (m.content or '') }}
{%- for c in m.tool_calls or [] %}
{{- '\n<tool_call>\n<function=' + c.function.name + '>\n' }}
{%- for k, v in c.function.arguments|items %}
{{- '<parameter=' + k + '>\n' }}
{{- v if v is string else v | tojson }}
{{- '\n</parameter>\n' }}
{%- endfor %}
{{- '</function>\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\n' }}
{%- endfor %}
{{- '<|im_start|>assistant\n' if add_generation_prompt }})"},
    {"glm-4.5", "", R"([gMASK]<sop>
{%- if tools %}<|system|>{{ tools | tojson }}{% endif %}
{%- for m in messages %}
{{- '<|' + m.role + '|>' }}
{%- if m.reasoning_content %}{{ '\n<think>' + m.reasoning_content + '</think>' }}{% endif %}
{{- '\n' + (m.content or '') }}
{%- for c in m.tool_calls or [] %}
{{- '\n<tool_call>' + c.function.name }}
{% for k, v in c.function.arguments|items %}<arg_key>{{ k }}</arg_key>
<arg_value>{{ v if v is string else v | tojson }}</arg_value>
{% endfor %}</tool_call>
{%- endfor %}
{%- endfor %}
{{- '<|assistant|>' if add_generation_prompt }})"},
    {"minimax-m2", "[e~[\n", R"({%- if tools %}{{ tools | tojson }}{% endif %}
{%- for m in messages %}
{{- ']~b]' + m.role + '\n' + (m.content or '') }}
{%- if m.tool_calls %}
{{- '\n<minimax:tool_call>\n' }}
{%- for c in m.tool_calls %}
{{- '<invoke name="' + c.function.name + '">\n' }}
{%- for k, v in c.function.arguments|items %}
{{- '<parameter name="' + k + '">' }}
{{- v if v is string else v | tojson }}
{{- '</parameter>\n' }}
{%- endfor %}
{{- '</invoke>\n' }}
{%- endfor %}
{{- '</minimax:tool_call>' }}
{%- endif %}
{{- '[e~[\n' }}
{%- endfor %}
{{- ']~b]assistant\n' if add_generation_prompt }})"},
    {"kimi-k2", "<|im_end|>", R"({%- if tools %}{{ tools | tojson }}{% endif %}
{%- for m in messages %}
{{- '<|im_' + m.role + '|>' + m.role + '<|im_middle|>' + (m.content or '') }}
{%- if m.tool_calls %}
{{- '<|tool_calls_section_begin|>' }}
{%- for c in m.tool_calls %}
{{- '<|tool_call_begin|>' + c.id + '<|tool_call_argument_begin|>' }}
{{- c.function.arguments if c.function.arguments is string else c.function.arguments | tojson }}
{{- '<|tool_call_end|>' }}
{%- endfor %}
{{- '<|tool_calls_section_end|>' }}
{%- endif %}
{{- '<|im_end|>' }}
{%- endfor %}
{{- '<|im_assistant|>assistant<|im_middle|>' if add_generation_prompt }})"},
    {"deepseek-v3.1", "<｜end▁of▁sentence｜>", R"({%- if tools %}{{ tools | tojson }}{% endif %}
{%- for m in messages %}
{%- if m.role == 'assistant' %}
{{- '<｜Assistant｜>' + (m.content or '') }}
{%- if m.tool_calls %}
{{- '<｜tool▁calls▁begin｜>' }}
{%- for c in m.tool_calls %}
{{- '<｜tool▁call▁begin｜>' + c.function.name + '<｜tool▁sep｜>' }}
{{- c.function.arguments | tojson + '<｜tool▁call▁end｜>' }}
{%- endfor %}
{{- '<｜tool▁calls▁end｜>' }}
{%- endif %}
{{- '<｜end▁of▁sentence｜>' }}
{%- else %}{{ '<｜User｜>' + m.content }}{% endif %}
{%- endfor %}
{{- '<｜Assistant｜>' if add_generation_prompt }})"},
    {"mistral-args", "</s>", R"({%- if tools %}[AVAILABLE_TOOLS]{{ tools | tojson }}{% endif %}
{%- for m in messages %}
{%- if m.role == 'user' %}{{ '[INST]' + m.content + '[/INST]' }}
{%- else %}{{ m.content or '' }}
{%- for c in m.tool_calls or [] %}
{{- '[TOOL_CALLS]' + c.function.name + '[CALL_ID]' + c.id + '[ARGS]' }}
{{- c.function.arguments | tojson }}
{%- endfor %}
{{- '</s>' }}
{%- endif %}
{%- endfor %})"},
    {"functionary-3.1", "<|eot_id|>", R"({%- if tools %}{{ tools | tojson }}{% endif %}
{%- for m in messages %}
{{- '<|' + m.role + '|>\n\n' + (m.content or '') }}
{%- for c in m.tool_calls or [] %}
{{- '<function=' + c.function.name + '>' + c.function.arguments + '</function>' }}
{%- endfor %}
{{- '<|eot_id|>' }}
{%- endfor %}
{{- '<|assistant|>\n\n' if add_generation_prompt }})"},
    {"functionary-3.2", "<|eot_id|>", R"({%- if tools %}{{ tools | tojson }}{% endif %}
{%- for m in messages %}
{{- '<|' + m.role + '|>\n\n' }}
{%- if m.content %}{{ '>>>all\n' + m.content }}{% endif %}
{%- for c in m.tool_calls or [] %}
{{- '>>>' + c.function.name + '\n' + c.function.arguments }}
{%- endfor %}
{{- '<|eot_id|>' }}
{%- endfor %}
{{- '<|assistant|>\n\n>>>' if add_generation_prompt }})"},
    {"gpt-oss", "", R"({%- if tools %}{{ tools | tojson }}{% endif %}
{%- for m in messages %}
{%- if m.role == 'user' %}{{ '<|start|>user<|message|>' + m.content + '<|end|>' }}
{%- else %}
{%- if m.thinking %}
{{- '<|start|>assistant<|channel|>analysis<|message|>' + m.thinking + '<|end|>' }}
{%- endif %}
{%- if m.content %}
{{- '<|start|>assistant<|channel|>final<|message|>' + m.content + '<|end|>' }}
{%- endif %}
{%- for c in m.tool_calls or [] %}
{{- '<|start|>assistant<|channel|>commentary to=functions.' + c.function.name }}
{{- ' <|constrain|>json<|message|>' + c.function.arguments | tojson + '<|call|>' }}
{%- endfor %}
{%- endif %}
{%- endfor %}
{{- '<|start|>assistant' if add_generation_prompt }})"},
    {"gemma-4", "<turn|>\n", R"({%- macro value(v) -%}
{%- if v is string %}{{ '<|"|>' + v + '<|"|>' }}
{%- elif v is mapping %}{{ '{' }}
{%- for k, x in v|items %}{{ k + ':' }}{{ value(x) }}{{ ',' if not loop.last }}{% endfor %}
{{- '}' }}
{%- elif v is iterable %}{{ '[' }}
{%- for x in v %}{{ value(x) }}{{ ',' if not loop.last }}{% endfor %}{{ ']' }}
{%- else %}{{ v | tojson }}{% endif %}
{%- endmacro -%}
{%- if tools %}{{ tools | tojson }}{% endif %}
{%- for m in messages %}
{{- '<|turn>' + m.role + '\n' + (m.content or '') }}
{%- for c in m.tool_calls or [] %}
{{- '<|tool_call>call:' + c.function.name }}{{ value(c.function.arguments) }}
{{- '<tool_call|>' }}
{%- endfor %}
{{- '<turn|>\n' }}
{%- endfor %}
{{- '<|turn>assistant\n' if add_generation_prompt }})"},
    {"of the template", "<|end|>", R"({%- if tools %}{{ tools | tojson }}{% endif %}
{%- for m in messages %}
{{- '<|' + m.role + '|>' + (m.content or '') }}
{%- if m.tool_calls %}{{ '<calls>' + m.tool_calls | tojson + '</calls>' }}{% endif %}
{{- '<|end|>' }}
{%- endfor %}
{{- '<|assistant|>' if add_generation_prompt }})"},
};

}  // namespace kvant::test
