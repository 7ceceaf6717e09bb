"""How users put things: politeness, punctuation and case around a core request."""

OPENERS = ["Please", "Hey,", "Hi,", "Hello,", "Quick question:", "One more thing:", "Okay,", "Now"]
CLOSERS = [" Thanks.", " Thank you.", " Please.", " Thanks!"]

PEOPLE = (
    "Ana Ben Carla David Elif Femi Greta Hugo Iris Jonas Kira Leo Mina Noah Olga Pablo Quinn Rosa "
    "Sami Tara Uma Viktor Wanda Yusuf Zoe Amir Bella Chen Dara Emil"
).split()
CITIES = (
    "Paris Rome Oslo Madrid Berlin Lisbon Vienna Prague Dublin Athens Helsinki Warsaw London Tokyo "
    "Cairo Lima Boston Chicago Toronto Sydney Delhi Seoul Nairobi Quito Havana Geneva Munich Milan "
    "Porto Bergen Bristol Lyon Turin Malmo Gdansk Riga Tallinn Vilnius Zagreb Sofia"
).split()
WORDS = (
    "apple bread butter cheese coffee tea milk honey salt pepper rice pasta onion tomato carrot lemon "
    "garden river window table paper pencil letter music bridge forest island mountain summer winter "
    "morning evening lunch dinner meeting train ticket museum market doctor school office kitchen "
    "laundry soup salad cake bike car dog cat bird fish star moon cloud rain snow wind stone wood glass "
    "copper silver book story song dance game puzzle chess photo camera phone laptop report invoice "
    "budget project plan idea holiday birthday party concert film theatre library park station harbour"
).split()


def lower_first(text):
    """`text` with a small first letter, unless it starts with a name or the word I."""
    first = text.split(" ", 1)[0]
    keep = first in PEOPLE or first in CITIES or first in ("I", "I'm", "Python")
    return text if keep else text[0].lower() + text[1:]


def dress(rng, text, casual=True):
    """One of many ways to send `text`; `casual` allows it all in lower case."""
    if rng.random() < 0.3:
        text = rng.choice(OPENERS) + " " + lower_first(text)
    if rng.random() < 0.15:
        text += rng.choice(CLOSERS)
    if rng.random() < 0.2:
        text = text.rstrip(".?!")
    if casual and rng.random() < 0.12:
        text = text.lower()
    return text


def listing(items):
    """`a, b and c`."""
    return items[0] if len(items) == 1 else ", ".join(items[:-1]) + " and " + items[-1]
