"""Questions and answers of the dialogue model: sums, weekdays, months, dates, spelling and small talk.

Every kind draws its facts and a phrase from a random.Random. A question is held out by its facts (two numbers, a word, a day and a
distance ...), never by its phrase, so that nothing that is asked in the evaluation was ever answered in training. Answers write down
the steps that lead to them.
"""
import hashlib
import string

DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
MONTHS = ["January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November", "December"]
LENGTHS = [31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31]
THINGS = ["apples", "books", "coins", "letters", "cards", "eggs", "stones", "stamps", "sheep", "ships"]
PLACES = ["France", "Japan", "Italy", "Peru", "Egypt", "Canada", "Norway", "Kenya", "India", "Chile", "Poland", "China", "Spain",
          "Cuba", "Greece", "Iran", "Brazil", "Texas", "Ghana", "Sweden"]


def is_held_out(facts):
    """One in ten, by a hash of the facts: the same in every run and on every machine."""
    return hashlib.sha256(repr(facts).encode()).digest()[0] < 26


def pick(random, facts_of, part):
    """Facts of the wanted part, "train" or "heldout"."""
    while True:
        facts = facts_of()
        if is_held_out(facts) == (part == "heldout"):
            return facts


def number(random):
    return random.randrange(10 ** random.choice((1, 2, 2, 3, 3, 3)))


def columns_of(a, b):
    """Digits of both from the last to the first, the shorter number filled with zeros."""
    width = max(len(str(a)), len(str(b)))
    return zip(*(map(int, reversed(str(n).zfill(width))) for n in (a, b)))


def added(a, b):
    steps, carry = [], 0
    for x, y in columns_of(a, b):
        steps.append(f"{x}+{y}+1={x + y + 1}" if carry else f"{x}+{y}={x + y}")
        carry = (x + y + carry) // 10
    return f"{a} + {b}: {', '.join(steps)}, so {a + b}."


def subtracted(a, b):
    if a < b:
        return f"{a} is less than {b}. {subtracted(b, a).replace(', so ', ', so -')}"
    steps, borrow = [], 0
    for x, y in columns_of(a, b):
        top = x - borrow
        borrow = int(top < y)
        top += 10 * borrow
        steps.append(f"{top}-{y}={top - y}")
    return f"{a} - {b}: {', '.join(steps)}, so {a - b}."


def sums(random, words, part):
    pair = pick(random, lambda: ("sum", *sorted((number(random), number(random)))), part)[1:]
    a, b = pair if random.random() < 0.5 else pair[::-1]
    thing = random.choice(THINGS)
    question = random.choice([
        f"What is {a} + {b}?", f"{a} + {b}", f"{a}+{b}", f"{a}+{b}=?", f"What is {a} plus {b}?", f"{a} plus {b}",
        f"Add {a} and {b}.", f"How much is {a} plus {b}?", f"How much is {a} + {b}?", f"What is the sum of {a} and {b}?",
        f"Calculate {a} + {b}.", f"Add {b} to {a}.", f"Can you add {a} and {b}?",
        f"I have {a} {thing} and get {b} more. How many {thing} have I now?", f"What do {a} and {b} make?"])
    return question, added(a, b)


def differences(random, words, part):
    def facts():
        a, b = number(random), number(random)
        return ("difference", min(a, b), max(a, b)) if a < b and random.random() < 0.15 else ("difference", max(a, b), min(a, b))
    a, b = pick(random, facts, part)[1:]
    thing = random.choice(THINGS)
    questions = [
        f"What is {a} - {b}?", f"{a} - {b}", f"{a}-{b}", f"{a}-{b}=?", f"What is {a} minus {b}?", f"{a} minus {b}",
        f"Subtract {b} from {a}.", f"Take {b} from {a}.", f"How much is {a} minus {b}?", f"How much is {a} - {b}?",
        f"Calculate {a} - {b}.", f"What remains if I take {b} from {a}?"]
    if a >= b:
        questions += [f"I have {a} {thing} and lose {b}. How many {thing} are left?", f"What is the difference of {a} and {b}?"]
    return random.choice(questions), subtracted(a, b)


def weekdays(random, words, part):
    _, day, n, sign = pick(random, lambda: ("day", random.randrange(7), random.randint(1, 30), random.choice((1, -1))), part)
    name, unit = DAYS[day], "day" if n == 1 else "days"
    if sign > 0:
        questions = [f"What day is {n} {unit} after {name}?", f"What day comes {n} {unit} after {name}?",
                     f"Today is {name}. What day will it be in {n} {unit}?", f"{n} {unit} after {name}",
                     f"If today is {name}, what day is it in {n} {unit}?", f"Which day is {n} {unit} after {name}?"]
        questions += [f"What day comes after {name}?", f"Today is {name}. What day is tomorrow?"] if n == 1 else []
    else:
        questions = [f"What day is {n} {unit} before {name}?", f"What day comes {n} {unit} before {name}?",
                     f"Today is {name}. What day was it {n} {unit} ago?", f"{n} {unit} before {name}",
                     f"If today is {name}, what day was it {n} {unit} ago?", f"Which day was {n} {unit} before {name}?"]
        questions += [f"What day comes before {name}?", f"Today is {name}. What day was yesterday?"] if n == 1 else []
    weeks, rest = divmod(n, 7)
    steps = [f"{i} {DAYS[(day + sign * i) % 7]}" for i in range(1, rest + 1)]
    told = f"{weeks} {'week' if weeks == 1 else 'weeks'}" if weeks else ""
    told += " and " if weeks and rest else ""
    told += f"{rest} {'day' if rest == 1 else 'days'}" if rest else ""
    way = "after" if sign > 0 else "before"
    answer = f"{told} {way} {name}: {', '.join(steps)}{', ' if steps else ''}so {DAYS[(day + sign * n) % 7]}."
    return random.choice(questions), answer


def months(random, words, part):
    _, month, n, sign = pick(random, lambda: ("month", random.randrange(12), random.randint(1, 12), random.choice((1, -1))), part)
    name, unit = MONTHS[month], "month" if n == 1 else "months"
    if sign > 0:
        questions = [f"What month is {n} {unit} after {name}?", f"What month comes {n} {unit} after {name}?",
                     f"It is {name}. What month will it be in {n} {unit}?", f"Which month is {n} {unit} after {name}?"]
        questions += [f"What month comes after {name}?", f"Which month follows {name}?"] if n == 1 else []
    else:
        questions = [f"What month is {n} {unit} before {name}?", f"What month comes {n} {unit} before {name}?",
                     f"It is {name}. What month was it {n} {unit} ago?", f"Which month is {n} {unit} before {name}?"]
        questions += [f"What month comes before {name}?"] if n == 1 else []
    raw = month + 1 + sign * n
    steps = [f"{month + 1}{'+' if sign > 0 else '-'}{n}={raw}"]
    if not 1 <= raw <= 12:
        steps.append(f"{raw}{'-' if sign > 0 else '+'}12={raw - sign * 12}")
    return random.choice(questions), f"{name} is month {month + 1}, {', '.join(steps)}, so {MONTHS[(month + sign * n) % 12]}."


def month_lengths(random, words, part):
    """All twelve are facts that have to be told, so a phrase with a month is what is held out."""
    def facts():
        return "length", random.randrange(12), random.randrange(7)
    _, month, phrase = pick(random, facts, part)
    name = MONTHS[month]
    question = [f"How many days does {name} have?", f"How many days are in {name}?", f"How long is {name}?",
                f"How many days has {name}?", f"What is the length of {name}?", f"How many days are there in {name}?",
                f"Days in {name}?"][phrase]
    return question, f"{name} has {LENGTHS[month]} days{', and 29 in a leap year' if month == 1 else ''}."


def dates(random, words, part):
    """How months follow each other has to be told, so at their ends the phrase is what is held out, and elsewhere the day."""
    phrase, is_day_first = random.randrange(5), random.random() < 0.5
    def facts():
        month, sign = random.randrange(12), random.choice((1, -1))
        end = LENGTHS[month] if sign > 0 else 1
        day = end if random.random() < 0.3 else random.randint(1, LENGTHS[month])
        return ("date", day, month, sign, *((phrase, is_day_first) if day == end else ()))
    day, month, sign = pick(random, facts, part)[1:4]
    name = MONTHS[month]
    date = f"{day} {name}" if is_day_first else f"{name} {day}"
    if sign > 0:
        question = [f"What date comes after {date}?", f"What is the day after {date}?", f"What comes after {date}?",
                    f"Today is {date}. What date is tomorrow?", f"The day after {date}?"][phrase]
        length = f"{name} has {LENGTHS[month]} days"
        if month == 1 and day == 28:
            return question, f"{length}, so 1 March, or 29 February in a leap year."
        following = f"1 {MONTHS[(month + 1) % 12]}" if day == LENGTHS[month] else f"{day + 1} {name}"
        return question, f"{length}, so {following}."
    question = [f"What date comes before {date}?", f"What is the day before {date}?", f"What comes before {date}?",
                f"Today is {date}. What date was yesterday?", f"The day before {date}?"][phrase]
    if day > 1:
        return question, f"{day}-1={day - 1}, so {day - 1} {name}."
    before = (month - 1) % 12
    leap = ", or 29 February in a leap year" if before == 1 else ""
    return question, f"{MONTHS[before]} has {LENGTHS[before]} days, so {LENGTHS[before]} {MONTHS[before]}{leap}."


def word_of(random, words, part):
    """A word of the list, or letters at random, so that any word can be asked for."""
    if part == "train" and random.random() < 0.35:
        return pick(random, lambda: "".join(random.choices(string.ascii_lowercase, k=random.randint(2, 11))), part)
    return random.choice(words[part])


def quoted(random, word):
    return random.choice([word, word, f"'{word}'", f'"{word}"', f"the word {word}"])


def spelling(random, words, part):
    word = word_of(random, words, part)
    w = quoted(random, word)
    question = random.choice([f"Spell {w}.", f"How do you spell {w}?", f"How is {w} spelled?", f"Can you spell {w}?",
                              f"What are the letters of {w}?", f"Spell {w} for me."])
    return question, "-".join(word) + "."


def backwards(random, words, part):
    word = word_of(random, words, part)
    w = quoted(random, word)
    question = random.choice([f"Spell {w} backwards.", f"What is {w} backwards?", f"How do you spell {w} backwards?",
                              f"Write {w} backwards.", f"Reverse {w}.", f"{w} backwards"])
    return question, "-".join(reversed(word)) + "."


def end_letters(random, words, part):
    word = word_of(random, words, part)
    w, is_first = quoted(random, word), random.random() < 0.5
    which, verbs = ("first", ("begin", "start")) if is_first else ("last", ("end", "end"))
    question = random.choice([f"What is the {which} letter of {w}?", f"Which letter is the {which} of {w}?",
                              f"What letter does {w} {random.choice(verbs)} with?", f"The {which} letter of {w}?"])
    return question, f"The {which} letter of {word} is {word[0] if is_first else word[-1]}."


def letter_counts(random, words, part):
    word = word_of(random, words, part)
    w = quoted(random, word)
    question = random.choice([f"How many letters are in {w}?", f"How many letters does {w} have?", f"Count the letters of {w}.",
                              f"How long is {w}?", f"How many letters has {w}?"])
    return question, " ".join(f"{c}{i}" for i, c in enumerate(word, 1)) + f", so {len(word)}."


def occurrences(random, words, part):
    word = word_of(random, words, part)
    if part == "train" and random.random() < 0.4:  # more letters that come again
        at = random.randrange(len(word))
        word = word[:at] + word[at] * random.randint(1, 2) + word[at + 1:]
    letter = random.choice(word) if random.random() < 0.85 else random.choice(string.ascii_lowercase)
    w = quoted(random, word)
    question = random.choice([f"How many {letter}'s are in {w}?", f"How many times does {letter} occur in {w}?",
                              f"Count the letter {letter} in {w}.", f"How many {letter} are in {w}?", f"How often is {letter} in {w}?"])
    steps, count = [], 0
    for c in word:
        count += c == letter
        steps.append(f"{c}{count}" if c == letter else c)
    return question, " ".join(steps) + f", so {count}."


CAN = "I can add and subtract, count days and months, and spell words."
TALK = [
    (["Hello", "Hi", "Hey", "Hello there", "Hi there", "Good morning", "Good evening", "Good day", "Greetings", "Hello you"],
     "Hello! Ask me for a sum, a date or a word to spell."),
    (["How are you?", "How do you do?", "How is it going?", "Are you well?", "How are you today?"],
     "I am a program, so I am always the same. What shall I add or spell?"),
    (["Who are you?", "What are you?", "What is your name?", "Tell me about yourself.", "Are you a robot?", "Are you human?",
      "Who made you?", "Are you an AI?", "Which model are you?"],
     "I am a very small language model that comes with kvant. " + CAN),
    (["What can you do?", "Help", "Help me.", "What do you know?", "What can I ask?", "Can you help me?", "What are you good at?",
      "What should I ask you?"], CAN + " I know nothing else."),
    (["Do you know everything?", "Are you always right?", "Can I trust you?", "Do you make mistakes?", "Are you sure?",
      "Is that right?"], "No, I am small and sometimes wrong. Please check what matters."),
    (["Thank you", "Thanks", "Thank you very much", "Many thanks", "Great, thanks", "Well done", "Very good"], "You are welcome."),
    (["Bye", "Goodbye", "Good night", "See you", "See you later", "Farewell"], "Goodbye!"),
]


def talk(random, words, part):
    """Greetings and honest words. The phrases are few, so all are learnt; what is unknown is told in unknown()."""
    phrases, answer = random.choice(TALK)
    question = random.choice(phrases)
    return (question + random.choice(["", "!", "."]) if question[-1].isalpha() else question), answer


def unknown(random, words, part):
    if random.random() < 0.2:
        a, b = random.randrange(1, 100), random.randrange(1, 100)
        question = random.choice([f"What is {a} times {b}?", f"{a} * {b}", f"What is {a} divided by {b}?", f"{a} / {b}",
                                  f"Multiply {a} by {b}.", f"Divide {a} by {b}.", f"What is the square root of {a}?"])
        return question, "I have not learned to multiply or divide. I can add and subtract."
    def noun():
        return random.choice(words[part])
    place, x, y = random.choice(PLACES), noun(), noun()
    question = random.choice([
        f"What is the capital of {place}?", f"Where is {place}?", f"How many people live in {place}?", f"What is {x}?",
        f"What does {x} mean?", f"Who wrote the {x}?", f"Who was {x}?", f"Tell me a story about {x}.", "Tell me a joke.",
        f"Write a poem about {x}.", f"Why is the {x} {y}?", f"What do you think of {x}?", f"How do I make {x}?",
        f"Translate {x} into French.", f"Do you like {x}?", f"What is the best {x}?", f"Where can I buy {x}?", f"{x} {y} {noun()}",
        f"Is {x} better than {y}?", f"Explain {x}.", f"What is the weather in {place}?", f"Who is the king of {place}?",
        f"Write a program for {x}.", f"When did {x} {y}?", f"How old is the {x}?", f"Can {x} {y}?", f"Sing a song about {x}."])
    return question, "I do not know. " + CAN


# name: (maker, share of the training turns)
KINDS = {
    "sums": (sums, 3.0), "differences": (differences, 3.0), "weekdays": (weekdays, 2.0), "months": (months, 1.2),
    "month lengths": (month_lengths, 0.5), "dates": (dates, 2.0), "spelling": (spelling, 1.0), "backwards": (backwards, 1.5),
    "first and last letters": (end_letters, 0.8), "counting letters": (letter_counts, 0.8), "counting one letter": (occurrences, 1.5),
    "small talk": (talk, 0.8), "what it cannot do": (unknown, 1.2),
}
SYSTEMS = ["You are a helpful assistant.", "You are a small model.", "Answer briefly.", "Be kind and brief.",
           "You are an assistant who adds and spells."]


def said(random, question):
    """The same question as people type it: small letters, no full stop, politeness."""
    chance = random.random()
    if chance < 0.08:
        question = "Please " + question[0].lower() + question[1:] if question[:2] not in ("I ", "It") else question
    elif chance < 0.14:
        question = question.rstrip(".?") + ", please" + question[-1] * (question[-1] in ".?")
    if random.random() < 0.25:
        question = question.rstrip(".?!")
    return question.lower() if random.random() < 0.25 else question


def turn(random, words, part, kind=None):
    kind = kind or random.choices(list(KINDS), [share for _, share in KINDS.values()])[0]
    question, answer = KINDS[kind][0](random, words, part)
    return said(random, question), answer
