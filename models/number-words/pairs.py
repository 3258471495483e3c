"""Numbers up to 999,999 and how they are said: what the model reads, and what it has to answer.

Two tasks, told apart by a prefix as T5's are: "digits: three hundred and forty-two" is answered "342", "words: 342" is answered
"three hundred forty-two". Sources are said in several ways, answers in one. One number in ten above 20 is held out, in both tasks.
"""
import random

MOST = 999_999
ALWAYS_TRAINED = 20  # every number below is a word of its own

ONES = ("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen "
        "nineteen").split()
TENS = "zero ten twenty thirty forty fifty sixty seventy eighty ninety".split()
TASKS = ("digits", "words")
LENGTH_WEIGHTS = (1, 4, 10, 10, 10, 15)  # of numbers of 1 to 6 digits


def is_held_out(number):
    return number > ALWAYS_TRAINED and (number * 2654435761 % 2**32 >> 16) % 10 == 0


def below_hundred(number, hyphen="-"):
    if number < 20:
        return ONES[number]
    return TENS[number // 10] + (hyphen + ONES[number % 10] if number % 10 else "")


def below_thousand(number, hyphen="-", link=" "):
    """`link` stands between hundreds and the rest: " " or " and "."""
    if number < 100:
        return below_hundred(number, hyphen)
    rest = number % 100
    return ONES[number // 100] + " hundred" + (link + below_hundred(rest, hyphen) if rest else "")


def say(number, hyphen="-", link=" ", last_link=" ", comma=""):
    """`last_link` stands between thousands and a rest below a hundred, `comma` behind thousands that a rest follows."""
    if number < 1000:
        return below_thousand(number, hyphen, link)
    rest = number % 1000
    text = below_thousand(number // 1000, hyphen, link) + " thousand"
    if rest:
        text += (last_link if rest < 100 else comma + " ") + below_thousand(rest, hyphen, link)
    return text


def draw_number(draw, part):
    """A number of `part`, "train" or "heldout"; one in five has some digits set to zero."""
    while True:
        digits = draw.choices(range(1, 7), LENGTH_WEIGHTS)[0]
        number = draw.randint(10 ** (digits - 1) if digits > 1 else 0, 10**digits - 1)
        if draw.random() < 0.2:
            number = int("".join(d if i == 0 or draw.random() < 0.4 else "0" for i, d in enumerate(str(number))))
        if is_held_out(number) == (part == "heldout"):
            return number


def said_somehow(draw, number):
    link = draw.choice([" ", " and "])
    text = say(number, draw.choice(["-", "-", " "]), link, draw.choice([" ", " and "]), draw.choice(["", "", ","]))
    if text.startswith("one hundred") or text.startswith("one thousand"):
        text = draw.choice(["one", "a"]) + text[3:]
    return text


def pair(draw, task, part):
    """A source and its answer."""
    number = draw_number(draw, part)
    if task == "digits":
        return "digits: " + said_somehow(draw, number), str(number)
    return "words: " + (f"{number:,}" if draw.random() < 0.25 else str(number)), say(number)


def held_out(task, count, seed=607):
    """Different sources of numbers that no training has seen; the same for the same count and seed."""
    draw, found = random.Random(f"{task} {seed}"), {}
    while len(found) < count:
        source, answer = pair(draw, task, "heldout")
        found[source] = answer
    return list(found.items())
