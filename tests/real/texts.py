"""Texts that vectors are made of: sentences, documents with a question to each, and pairs with scores."""
from common import shared_text

SENTENCES = 1000

# Short, long, odd and foreign ones. None has the name of a control token, which is text to kvant and a token to sentence-transformers. The rest of the sentences are those of shared material.
OWN = (
    "...", "?", "a", "I", "0", "3.14159265358979", "hello", "HELLO, WORLD!", "Hello world", "naïve café", "NAÏVE CAFÉ", "São Paulo", "Straße",
    "don't can't won't", "e-mail: someone@example.org", "https://example.org/a?b=c&d=e#f",
    "def f(x): return x ** 2 + 1", "SELECT name FROM users WHERE id = 7;", "1887, 312 ships, 96 bells, 4 a.m.", "supercalifragilisticexpialidocious",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "😀 😃 😄", "♥ ♦ ♣ ♠",
    "Le phare est fermé en hiver.", "Der Leuchtturm ist 23,5 Meter hoch.", "Маяк виден за двадцать миль.", "灯台は白い。", "今天天气很好，我们去公园散步吧。",
    "안녕하세요, 반갑습니다.", "المنارة بيضاء.", "המגדלור לבן.", "प्रकाशस्तंभ सफेद है।", "Ο φάρος είναι λευκός.", "   spaces   in\tthe   text   ", "x" * 300,
    "The cat sat on the mat.", "The mat was sat on by the cat.", "A cat did not sit on the mat.", "No.", "Yes, of course.", "Why?", "It rains.",
    "One two three four five six seven eight nine ten.", "The quick brown fox jumps over the lazy dog.", "To be, or not to be, that is the question.",
    "Water boils at 100 °C at sea level.", "E = m c²", "½ + ¼ = ¾", "co-operate, re-enter, un-ionized", "A.B.C.D.E.F.", "\"Quoted\" and 'quoted' and «quoted»",
    "This sentence has exactly seven words.", "The Treaty of Westphalia was signed in 1648.", "Photosynthesis turns light into sugar.",
    " ".join(f"Item {i} of a list that is longer than the model reads." for i in range(40)),
)

# A document on each subject, and a question that it answers.
DOCUMENTS = (
    ("Giant pandas live in the mountains of central China and eat almost nothing but bamboo.", "What do pandas eat?"),
    ("The Moon turns around the Earth once in 27 days and always shows it the same side.", "How long does the Moon take for an orbit?"),
    ("Bread rises because yeast turns sugar into carbon dioxide, which the dough holds.", "Why does dough get bigger?"),
    ("A violin has four strings, tuned in fifths, and is played with a bow of horsehair.", "How many strings are on a fiddle?"),
    ("Insulin lets the cells of the body take up glucose from the blood.", "Which hormone lowers blood sugar?"),
    ("The Great Wall was built over centuries to keep riders of the steppe out of China.", "Why was a long wall built in China?"),
    ("Vaccines train the immune system with a harmless piece of a germ.", "How does immunization work?"),
    ("A transistor is a switch without moving parts, controlled by a voltage.", "What is the basic switch in a computer chip?"),
    ("Coral reefs grow in warm, shallow seas and shelter a quarter of all ocean species.", "Where do many sea creatures live?"),
    ("In chess the king is lost when it is attacked and no move saves it: checkmate.", "When does a game of chess end?"),
    ("The heart of an adult beats about seventy times a minute at rest.", "What is a normal pulse?"),
    ("Volcanoes form where molten rock from the mantle finds a way through the crust.", "How do volcanoes come about?"),
    ("Gutenberg printed a Bible with movable type in Mainz around 1455.", "Who invented printing with movable letters?"),
    ("A rainbow appears when sunlight is bent and reflected in drops of rain.", "What makes the colours in the sky after rain?"),
    ("Bees dance to tell their sisters in which direction flowers are and how far.", "How do bees communicate?"),
    ("The Titanic sank in April 1912 after it hit an iceberg on its first voyage.", "Which ship was lost on its maiden trip?"),
    ("Cheese is made of milk that rennet or acid has curdled.", "What is cheese made of?"),
    ("A mortgage is a loan for a house, which the lender may sell if it is not repaid.", "How do people borrow money to buy a home?"),
    ("The Amazon carries more water to the sea than any other river.", "Which is the largest river by flow?"),
    ("Python lists can be sorted in place with the method sort.", "How do I order a list in a Python program?"),
    ("Rust forms when iron meets water and oxygen.", "Why does a nail turn brown outdoors?"),
    ("A solar eclipse happens when the Moon passes between the Sun and the Earth.", "What hides the Sun during the day?"),
    ("Penguins are birds of the southern seas that swim well and cannot fly.", "Which birds swim but do not fly?"),
    ("Inflation means that prices rise and money buys less.", "What is it called when everything gets more expensive?"),
    ("The marathon is 42.195 kilometres long.", "What is the distance of the longest Olympic run?"),
    ("Beethoven wrote his ninth symphony when he was deaf.", "Which composer could not hear?"),
    ("Plants take carbon dioxide from the air and give off oxygen.", "What gas do leaves release?"),
    ("A passport is needed to travel to most foreign countries.", "Which document do I show at a border?"),
    ("Sharks have skeletons of cartilage and no bones.", "Do sharks have bones?"),
    ("The French Revolution began in 1789 with the storming of the Bastille.", "When did the people of Paris rise against the king?"),
    ("To reset the router, hold the small button on its back for ten seconds.", "My internet box does not work, what can I do?"),
    ("Coffee keeps people awake because caffeine blocks the receptors of adenosine.", "Why can I not sleep after an espresso?"),
    ("A triangle whose sides are 3, 4 and 5 has a right angle.", "Give an example of a right triangle."),
    ("Snow leopards hunt wild sheep in the high mountains of Central Asia.", "Which big cat lives in the cold heights of Asia?"),
    ("The parcel was returned because nobody was at home to sign for it.", "Why did my delivery not arrive?"),
    ("Glass is made of sand, soda and lime, melted at 1500 degrees.", "How are window panes produced?"),
    ("The employee must give notice four weeks before leaving the company.", "How early do I have to tell my boss that I quit?"),
    ("Antibiotics kill bacteria but do nothing against viruses.", "Do drugs against bacteria help against the flu?"),
    ("Mount Everest is 8849 metres high.", "How tall is the highest mountain?"),
    ("A glacier is ice that flows slowly downhill under its own weight.", "What is a river of ice?"),
)

# A query with a document, for a cross-encoder.
PAIRS = tuple((DOCUMENTS[i][1], DOCUMENTS[i * 7 % len(DOCUMENTS)][0]) for i in range(20))
CLASSIFIER_SEED = 5  # of NumPy's default_rng: the classifier is 384 normal numbers of a spread of 0.05, its bias is 0.1


def sentences():
    """Our own ones, then those of shared material that have 20 bytes or more."""
    lines = shared_text(600000).split("\n")
    found = [part.strip() + " ." for line in lines if not line.strip().startswith("=") for part in line.split(" . ")]
    found = list(dict.fromkeys(text for text in found if len(text) >= 20))
    return list(OWN) + found[:SENTENCES - len(OWN)]
