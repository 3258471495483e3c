"""Writes template_cases.json: templates, the variables they get, and the text that Python's jinja2
makes of them with the settings of transformers, or null where it refuses. tests/engine/
jinja_test.cpp renders the same. The time is 2026-03-07 09:05:03, a Saturday."""
import datetime
import json
import pathlib

from chat_environment import environment

VARIABLES = {
    "a": 7, "b": -3, "f": 2.5, "yes": True, "no": False, "nil": None, "s": "Hello World",
    "u": "Größe 日本 🦙", "w": "  x\n", "empty": "", "xs": [3, 1, 2], "names": ["bob", "Al", "cy"],
    "d": {"b": 1, "a": {"k": "v"}, "items": 5}, "rows": [{"n": "x", "v": 2}, {"n": "y", "v": 1},
                                                         {"n": "x", "v": 3, "o": {"p": 9}}],
    "wide": [2**64 - 1, 2**63, -(2**63), 12345678901234567890],
    "q": "it's \"quoted\" \\ <b>&\n\t\u0001\u00a0é",
}
EXPRESSIONS = r"""
a + b; a - b; a * b; a / b; a // b; a % b; a ** 2; 2 ** -1; -a % 4; f // 1; f % 2; -f // 1; 7 / 7
a + f; 1e3; 1e16; 123456789012345678; 1.5e-7; 0.1 + 0.2; 0x1F + 0b11 + 0o17 + 1_000; -a|abs; (-a)|abs
wide; wide | tojson; wide[0] ~ wide[2]; wide[1] + 1; wide[0] - wide[0]; wide[0] // 10; wide[0] % 7; -wide[2]; wide[2] | abs
'%d' % wide[0]; '%x' % wide[3]; '{:,}'.format(wide[0]); wide | sort; wide[0] > wide[1]; wide[0] is integer; wide[3] / 2; wide[3] * 0.5
{wide[0]: 1}; '18446744073709551615' | int; wide[0] | string; wide[3] | int; wide[3] | float; wide[3] | round; 1e19 | int; '-9223372036854775808' | int
wide[1] in wide; wide[1] == 2.0 ** 63; wide[2] + wide[1]; wide[2] * -1; 2 ** 63; 4294967295 * 4294967295; xs[wide[0]] is defined; s[:wide[0]]
a > b; a < b < 3; 1 < 2 < 3; 1 == 1.0; true == 1; 'a' < 'b'; [1, 2] < [1, 3]; nil == false; a != 7
yes and s; no or s; not yes; nil or empty or 'z'; a if yes else b; a if no; (a if no) is defined
1 in xs; 9 not in xs; 'ell' in s; 'b' in d; 'z' in d; 'x' in undefined_thing; nil in [none]
s ~ a ~ nil ~ yes ~ f; 'a' 'b'; 'x' * 3; [1] * 2; [1] + [2]; (1,) + (2, 3); (); (1,); 1, 2
s[0]; s[-1]; s[99] is defined; s[1:4]; s[::-1]; s[-3:]; s[:-1]; xs[1:]; xs[::-1]; xs[0]; xs[-1]; u[6:8]
d.b; d['b']; d.a.k; d['a']['k']; d.items is callable; d['items']; d.zz is defined; d.get('zz', 1)
d.get('b'); d.get('zz'); d.keys() | list; d.values() | list; d.items() | list; d.a.items() | first
xs; d; (1, 'a'); [none, true, 1.0, 'it\'s', "q\"q'"]; {'a': [1, (2,)]}; q; [q]; u; [u]; {1: 2, 'x': none}
s.upper(); s.lower(); s.title(); s.capitalize(); s.swapcase(); 'ab-cd ef'.title(); 'ß'.upper()
w.strip(); w.lstrip(); w.rstrip(); 'xxaxx'.strip('x'); 'abc'.rstrip('cb'); '{"a"}'.strip('{}')
s.split(); s.split('o'); s.split('o', 1); ' a  b '.split(); 'a,b,,c'.split(','); 'a b c'.rsplit(' ', 1)
' a b  c '.split(none, 1); ' a b  c '.rsplit(none, 1); 'a\nb\r\nc\n'.splitlines(); 'a-b-c'.partition('-')
'a-b-c'.rpartition('-'); 'abc'.partition('x'); s.replace('l', 'L'); s.replace('l', 'L', 1); 'ab'.replace('', '-')
s.startswith('He'); s.endswith(('x', 'ld')); s.find('o'); s.find('z'); s.rfind('o'); s.index('W'); s.count('l')
s.find('o', 5); '-'.join(names); '7'.zfill(3); '-7'.zfill(4); 'x'.center(4, '*'); 'x'.ljust(3) ~ '|'; 'x'.rjust(3)
'abc'.isalpha(); 'a1'.isalnum(); '12'.isdigit(); ' \n'.isspace(); 'AB'.isupper(); 'ab1'.islower(); ''.isdigit()
'abc'.removeprefix('a'); 'abc'.removesuffix('bc'); 'x'.isascii(); 'é'.isascii()
'%s is %d, %5.2f, %r, %%' % (s, a, f, s); '%05d|%-4d|%+d|%x' % (a, a, a, 255); '%(x)s' % {'x': 1}; '%s' % a
'{} {} {}'.format(1, 'x', f); '{0} {1} {0}'.format('a', 'b'); '{x}'.format(x=1); '{:>4}|{:<4}|{:^4}'.format(1, 2, 'x')
'{:.2f} {:05d} {:,}'.format(f, 42, 1234567); '{{}} {0[b]}'.format(d); '{!r}'.format(s); '{:x}'.format(255)
xs | sort; xs | sort(reverse=true); names | sort; names | sort(case_sensitive=true); rows | sort(attribute='v')
d | dictsort; d | dictsort(reverse=true); {'b': 1, 'A': 2} | dictsort; {'b': 1, 'a': 2} | dictsort(by='value')
nil | selectattr('x') | list; nil | map('upper') | list; xs | first; xs | last; xs | length; s | length; u | length; d | length; xs | sum; rows | sum(attribute='v')
xs | min; xs | max; names | max; [] | first is defined; xs | join; xs | join(', '); rows | join('+', attribute='n')
xs | reverse | list; s | reverse; xs | list; s | list; d | list; [1, 1, 2] | unique | list; names | map('upper') | list
rows | map(attribute='n') | join; rows | map(attribute='o.p', default=0) | list; rows | selectattr('o') | list | length
rows | selectattr('n', 'equalto', 'x') | map(attribute='v') | list; rows | rejectattr('n', '==', 'x') | list
xs | select('gt', 1) | list; xs | reject('odd') | list; xs | select | list; [0, 1] | reject | list
rows | groupby('n') | map('first') | list; [1, 2, 3, 4, 5] | batch(2) | list; [1, 2, 3] | batch(2, 0) | list
[1, 2, 3, 4, 5] | slice(2) | list; s | default('x'); zz | default('x'); empty | default('x', true); nil | d('x'); zz | default
s | upper; s | lower; s | title; s | capitalize; w | trim; 'xax' | trim('x'); s | replace('o', '0'); s | replace('o', '0', 1)
s | center(15) ~ '|'; 'a\nb\n\nc' | indent; 'a\nb' | indent(2, true); 'a\n\nb' | indent(2, blank=true); 'a\nb' | indent('> ')
'a b c d' | truncate(5); s | truncate(8, true, leeway=0); s | wordcount; 'a b&c/ü' | urlencode; a | string; f | int; '12' | int
'x' | int; 'x' | int(5); '0x1f' | int(0, 16); '2.9' | int; '1.5' | float; 'x' | float; 2.5 | round; 3.5 | round; 2.567 | round(2)
2.1 | round(0, 'ceil'); 2.9 | round(method='floor'); 7 | round; '<a> & "b"' | e; '<a>' | escape | escape; '<a>' | safe
'<a>' | safe + '<b>'; '<c>' + ('<a>' | safe); ('<a>' | safe) ~ '<b>'; '<a>' | safe | upper; ('a' | safe).strip() + '<'
d | tojson; d | tojson(indent=2); xs | tojson(indent=4); {} | tojson(indent=2); [] | tojson; q | tojson; u | tojson
u | tojson(ensure_ascii=true); [1.0, 1e20, 0.00001, -0.0, true, none] | tojson; {1: 2, none: 3, true: 4} | tojson
{'b': 1, 'a': 2} | tojson(sort_keys=true); (1, [2]) | tojson; xs | tojson(separators=(',', ':')); d | tojson(indent='\t')
d | tojson(separators=(',', ':')); [[], {}] | tojson(indent=1); d | items | list; zz | items | list
a is odd; a is even; a is divisibleby 7; a is divisibleby(2); s is string; a is number; f is float; a is integer; yes is integer
yes is boolean; nil is none; zz is undefined; zz is defined; d is mapping; xs is sequence; s is sequence; a is iterable
xs is iterable; d.keys() is sequence; d is iterable; 'a' is lower; 'A' is upper; 1 is eq 1; 2 is gt(1); 1 is in [1]; 1 is sameas 1
yes is true; 1 is true; no is false; range is callable; a is not string; not a is string; xs | length is gt 2; 'upper' is filter
range(3) | list; range(1, 8, 3) | list; range(3, 0, -1) | list; range(0) | list; range(5)[1]; range(3) | length; dict(a=1, b=2)
dict({'x': 1}, y=2); namespace(x=1).x; namespace({'y': 2}).y; strftime_now('%Y-%m-%d %H:%M:%S'); strftime_now('%d %b %Y, %A %B %-d %j %y %p %I')
s.zz is defined; nil.zz is defined; nil['zz'] is defined; xs.zz is defined; zz == qq; [zz]; zz ~ 'x'; zz | list; zz | length
not not s; -(-a); - - a; +a; (xs | first, xs | last); {'a': 1}.a; [1, 2, 3][1:][0]; 'abc'[1]|upper; (1 if yes else 2) + 3; 1 if no else 2 if no else 3
''.join(['a', 'b']); 'a' ~ 1 + 2; 1 + 2 ~ 'a'; 2 ** 3 ** 2; -2 ** 2; 10 - 4 - 3; 2 * 3 % 4; true and not false; 1 or 0 and 0; 'a' in 'abc' and 'b' not in 'xyz'
'\x41\u00e9\101\n\q'; 'a\
b'; "tab\there"; 'a' if 'x' in d else 'b'; d.a is mapping and d.b is number; xs | map('string') | join('-'); [3, 'a'] | map('string') | list
xs | length > 2; xs | length - 1; names | map('length') | sum; names[0] | upper ~ '!'; (names | first).upper(); xs.index(1); xs.count(3); (1, 2).index(2)
"""
REFUSED = r"""
1 / 0; a // 0; a % 0; 'a' + 1; 1 + 'a'; zz.x; zz['x']; zz(); zz + 1; 'a' < 1; none < 1; a(); xs.append(1); d.update({}); d.pop('b')
xs | nofilter; a is notest; s | int('x', 99); raise_exception('no'); range(200000); xs | tojson(indent=2, x=1); zz | tojson; range(3) | tojson
xs | join(1, 2, 3, 4); 'abc'.index('z'); '%d' % 'x'; '%s %s' % 'x'; '%s' % (1, 2); '{} {}'.format(1); s.split(''); {[1]: 2}; 1 in 2; a | length
[1, 'a'] | sort; d | dictsort(by='x'); {{; 1 +; (1; [1; 'a; a b; a | ; a.; a[; a is; if; 1 = 2; {'a'}; a ? b; f(**1); xs | batch
"""
STATEMENTS = [
    "{% if a > 3 %}\nyes\n{% elif a %}\nmid\n{% else %}\nno\n{% endif %}\nend\n",
    "  {% if no %}x{% endif %}  y\n   {# c #}\nz {%- if yes %}  t  {%- endif -%}   \n u",
    "a\n  {%+ if yes %}b{% endif +%}\nc\n", "{{ a }}\n{{ b }}\n\n", "{{- a -}}  x  {{- b }}\n",
    "x  {#- c -#}  y\n{# d #}\nz", "{% raw %}{{ x }}{% y %}{% endraw %}!", "{%- raw -%}  {{ }} {%- endraw -%} x",
    "\r\na\r\nb\rc", "a\n\n", "\n", "{% for x in xs %}{{ x }},{% endfor %}",
    "{% for x in xs %}\n  {{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}"
    "{{ loop.first }}{{ loop.last }}{{ loop.length }}\n{% endfor %}",
    "{% for x in [] %}x{% else %}none{% endfor %}", "{% for x in xs if x > 1 %}{{ x }}{{ loop.index }}{% endfor %}",
    "{% for x in xs if x > 9 %}x{% else %}none{% endfor %}", "{% for k, v in d.items() %}{{ k }}={{ v }};{% endfor %}",
    "{% for k in d %}{{ k }}{% endfor %}{% for c in 'héy' %}{{ c }}.{% endfor %}{% for x in zz %}x{% endfor %}",
    "{% for i, (x, y) in [(1, (2, 3))] %}{{ i }}{{ x }}{{ y }}{% endfor %}",
    "{% for x in xs %}{{ loop.previtem }}<{{ x }}>{{ loop.nextitem }} {% endfor %}",
    "{% for x in xs %}{{ loop.cycle('a', 'b') }}{{ loop.changed(x > 1) }}{% endfor %}",
    "{% for x in xs %}{% if x == 1 %}{% continue %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in xs %}{% if x == 1 %}{% break %}{% endif %}{{ x }}{% else %}e{% endfor %}",
    "{% for x in xs %}{% for y in xs %}{% if y == 1 %}{% break %}{% endif %}{{ x }}{{ y }} {% endfor %}{{ loop.index }}{% endfor %}",
    "{% for x in [1, [2, [3]]] recursive %}{{ loop.depth }}{% if x is number %}{{ x }}{% else %}({{ loop(x) }}){% endif %}{% endfor %}",
    "{% set x = 1 %}{% for i in xs %}{{ x }}{% set x = i %}{{ x }} {% endfor %}{{ x }}",
    "{% set ns = namespace(n=0, l=[]) %}{% for i in xs %}{% set ns.n = ns.n + i %}{% set ns.l = ns.l + [i] %}{% endfor %}{{ ns.n }}{{ ns.l }}",
    "{% if yes %}{% set x = 5 %}{% endif %}{{ x }}", "{% if no %}{% set x = 5 %}{% endif %}[{{ x }}]",
    "{% set x, y = 1, 2 %}{{ x }}{{ y }}{% set (p, q2) = (y, x) %}{{ p }}{{ q2 }}", "{% set t = 1, %}{{ t }}",
    "{% set x %}  <{{ a }}>\n{% endset %}[{{ x }}]", "{% set x | upper | trim %} abc {% endset %}[{{ x }}]",
    "{% macro m(x, y=2, z='q') %}{{ x }}{{ y }}{{ z }}{% endmacro %}{{ m(1) }} {{ m(1, z=3) }} {{ m(y=5, x=4) }} {{ m() }}",
    "{% macro m() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, k=3) }}", "{% macro m(x) %}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(x) %}{{ v }}{{ x }}{% endmacro %}{% set v = 9 %}{{ m(1) }}", "{% macro m(x) %}x{% endmacro %}{{ m(y=1) }}",
    "{% macro m(x) %}<{{ caller('c') }}{{ x }}>{% endmacro %}{% call(k) m(1) %}body{{ k }}{% endcall %}",
    "{% macro m() %}{{ caller() }}{% endmacro %}{% call m() %}{{ a }}{% endcall %}{{ m.name }}",
    "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(3) }}",
    "{% macro m(x, y=x) %}{{ x }}{{ y }}{% endmacro %}{{ m(3) }}", "{{ [1, 2] | map('string') | join }}{% set g = xs | map('string') %}{{ g | join }}{{ g | join }}",
    "{% filter upper %}a{{ s }}{% endfilter %}", "{% with x = 1, y = 2 %}{{ x }}{{ y }}{% endwith %}[{{ x }}]",
    "{% generation %}{{ s }}{% set inner = 1 %}{% endgeneration %}[{{ inner }}]", "{% set x = [] %}{% set _ = x.append(1) %}",
    "{% if a is defined and a %}1{% endif %}{% if zz %}2{% endif %}{% if not zz.x is defined %}3{% endif %}",
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{{ c.current }}", "{% set j = joiner(',') %}{% for x in xs %}{{ j() }}{{ x }}{% endfor %}",
    "{% if no %}{{ xs | nofilter }}{% endif %}ok", "{% macro m() %}{{ xs | nofilter }}{% endmacro %}ok", "{{ (xs | nofilter) if no else 1 }}",
    "{% for x in xs %}{{ x }", "{% if a %}", "{% endif %}", "{% for x in xs %}{% endif %}", "{% bogus %}", "{{ a ", "{# a", "{% raw %}", "{% break %}",
    "{% set a.b = 1 %}", "{% set 1 = 2 %}", "{% for true in xs %}{% endfor %}", "{% set x, y = 1 %}", "{% include 'x' %}", "{% extends 'x' %}", "{% macro m(x=1, y) %}{% endmacro %}",
    "{% call s %}{% endcall %}", "{{ raise_exception('bad ' ~ a) }}", "}} %} #} { % {x", "{{ '{{' }}{{ '%}' }}", "{{ {'a': {'b': 1}}['a'] }}", "{{ '}}' }}",
    "{%- for m in rows -%}\n    {{- m.n }}:\n    {%- if m.o is defined %}\n        {{- ' o' }}\n    {%- endif %}\n{% endfor %}\n",
    "{% for m in rows %}\n    {% if loop.first %}\nfirst\n    {% endif %}\n    {{ m.v }}\n\n{% endfor %}\n",
    "{% set ns = namespace(x=none) %}{{ ns.x }}{{ ns.y is defined }}{% set ns.y = 3 %}{{ ns['y'] }}",
    "{% for x in xs %}{% set y = x %}{% endfor %}[{{ y }}]", "{% print a, b %}" if False else "{{ a, b }}",
    "{{ d.items() | list | length }}{{ rows | map(attribute='n') | unique | list }}", "{% if rows[0]['role'] == 'system' %}x{% endif %}{{ rows[0]['zz'] }}",
    "{% for x in range(3) %}{% if loop.last %}{{ x }}{% endif %}{% if not loop.first %},{% endif %}{% endfor %}",
]


def rows(text):
    return [entry for line in text.strip().replace("'a\\\nb'", "'a\\\x00b'").split("\n")
            for entry in [e.strip().replace("\x00", "\n") for e in split(line)] if entry]


def split(line):
    """At semicolons with white space behind them."""
    return line.split("; ")


def main():
    templates = ["{{ " + e + " }}" for e in rows(EXPRESSIONS) + rows(REFUSED)] + STATEMENTS
    env = environment(datetime.datetime(2026, 3, 7, 9, 5, 3))
    cases = []
    for template in templates:
        try:
            text = env.from_string(template).render(**VARIABLES)
        except Exception:  # whatever Python raises
            text = None
        if text is None or "object at 0x" not in text:
            cases.append({"template": template, "text": text})
    out = pathlib.Path(__file__).parent / "template_cases.json"
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
    variables = json.dumps(VARIABLES, ensure_ascii=False)
    out.write_text(f'{{"variables": {variables},\n"cases": [\n{lines}\n]}}\n')
    print(len(cases), "cases,", sum(case["text"] is None for case in cases), "of them refused")


if __name__ == "__main__":
    main()
