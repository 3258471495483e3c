"""Random JSON schemas over the keywords that kvant enforces, the same ones for the same seed."""
import random

NAMES = ("name", "age", "tags", "a/b", "é", "x y", "kind", "n")
WORDS = ("red", "green", "", "blue\n", "日本", "a\"b")
PATTERNS = ("^[a-z]+$", "[0-9]{2}", "^(ab|cd)*$", "^[A-Z][a-z ]{0,8}\\.?$", "^\\S+@\\S+$", "^(?!no)[a-z]{2,6}$", "x")
FORMATS = ("date", "time", "date-time", "email", "ipv4", "ipv6", "uuid", "uri", "hostname", "json-pointer", "duration")


class Maker:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def maybe(self, share=0.5):
        return self.random.random() < share

    def schema(self, depth):
        kinds = [self.string, self.number, self.constant, self.plain]
        if depth > 0:
            kinds += [self.object, self.object, self.array, self.either, self.every]
        return self.random.choice(kinds)(depth - 1)

    def plain(self, _depth):
        return {"type": self.random.choice(["boolean", "null", "integer", ["null", "boolean"], ["integer", "null"]])}

    def constant(self, _depth):
        values = [self.random.choice([1, 2.5, None, True, [], {"a": [1]}, *WORDS]) for _ in range(self.random.randint(1, 4))]
        return {"const": values[0]} if self.maybe(0.3) else {"enum": values}

    def string(self, _depth):
        out = {"type": "string"}
        kind = self.random.randrange(4)
        if kind == 0:
            out["format"] = self.random.choice(FORMATS)
            return out
        if kind == 1:
            out["pattern"] = self.random.choice(PATTERNS)
        if self.maybe() or kind == 2:
            out["minLength"] = self.random.randint(0, 3)
        out["maxLength"] = self.random.randint(6, 40)
        return out

    def number(self, _depth):
        out = {"type": self.random.choice(["integer", "number"])}
        low = self.random.choice([-1000, -3, 0, 1, 2.5, 17])
        if self.maybe():
            out[self.random.choice(["minimum", "exclusiveMinimum"])] = low
        if self.maybe():
            out[self.random.choice(["maximum", "exclusiveMaximum"])] = low + self.random.choice([30, 99.5, 100000])
        if self.maybe(0.3):
            out["multipleOf"] = self.random.choice([1, 2, 5, 7])
        return out

    def object(self, depth):
        names = self.random.sample(NAMES, self.random.randint(1, 4))
        out = {"type": "object", "properties": {name: self.schema(depth) for name in names}}
        out["required"] = [name for name in names if self.maybe(0.6)]
        kind = self.random.randrange(6)
        if kind < 3:
            out["additionalProperties"] = False
        elif kind == 3:
            out["additionalProperties"] = {"type": "integer", "minimum": 0, "maximum": 9}
            out["maxProperties"] = len(names) + 1
        elif kind == 4:
            out["patternProperties"] = {"^p_": {"type": "boolean"}}
            out["additionalProperties"] = False
            out["maxProperties"] = len(names) + 1
        else:
            out["additionalProperties"] = False
            out["minProperties"] = 1
        if self.maybe(0.2) and len(names) > 1:
            out["dependentRequired"] = {names[0]: [names[1]]}
        return out

    def array(self, depth):
        out = {"type": "array", "maxItems": self.random.randint(2, 5)}
        kind = self.random.randrange(5)
        if kind == 0:
            out["prefixItems"] = [self.schema(depth) for _ in range(self.random.randint(1, 2))]
            out["items"] = self.random.choice([False, {"type": "boolean"}])
        elif kind == 1:
            out["items"] = {"enum": [1, 2, "x", None]}
            out["uniqueItems"] = True
            out["maxItems"] = 3
        elif kind == 2:
            out["items"] = {"type": ["integer", "null"], "minimum": 0, "maximum": 50}
            out["contains"] = {"type": "null"}
            out["minContains"] = 1
        else:
            out["items"] = self.schema(depth)
        if self.maybe(0.4) and kind != 0:
            out["minItems"] = 1
        return out

    def either(self, depth):
        if self.maybe(0.4):
            return {"oneOf": [self.string(depth), self.plain(depth)]}
        if self.maybe(0.3):
            return {"if": {"type": "integer"}, "then": {"minimum": 10, "maximum": 20}, "else": self.string(depth)}
        return {"anyOf": [self.schema(depth), self.schema(depth)]}

    def every(self, _depth):
        kind = self.random.randrange(3)
        if kind == 0:
            return {"allOf": [{"type": "string", "maxLength": 12}, {"pattern": self.random.choice(PATTERNS[:4])}]}
        if kind == 1:
            return {"type": "integer", "allOf": [{"minimum": 3}, {"maximum": 90}], "not": {"multipleOf": 3}}
        return {"$ref": "#/$defs/node"}


def schemas(count, seed=1):
    """So many schemas. What kvant refuses or nothing satisfies is among them."""
    maker = Maker(seed)
    out = []
    while len(out) < count:
        schema = maker.schema(3)
        schema["$defs"] = {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}, "v": {"type": "boolean"}},
                                    "required": ["v"], "additionalProperties": False}}
        out.append(schema)
    return out
