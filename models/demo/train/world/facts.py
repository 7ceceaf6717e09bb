"""Questions about the catalogue, and the polite answer for what is not in it."""

from .catalogue import (ATTRIBUTES, COLOURS, MAKERS, NOUNS, PRODUCTS, of_maker, of_noun, statement,
                        unknown_title)
from .phrasing import dress, listing
from .turn import Turn, user

ASK = {
    "price": ["What does the {t} cost?", "How much is the {t}?", "What is the price of the {t}?",
              "Price of the {t}?", "How much does the {t} cost?", "Tell me the price of the {t}."],
    "colour": ["What colour is the {t}?", "Which colour does the {t} have?", "What is the colour of the {t}?",
               "Colour of the {t}?", "What color is the {t}?", "Tell me the colour of the {t}."],
    "maker": ["Who makes the {t}?", "Who is the maker of the {t}?", "Which company makes the {t}?",
              "Maker of the {t}?", "Who made the {t}?", "Tell me the maker of the {t}."],
    "stock": ["How many of the {t} are in stock?", "Is the {t} in stock?", "Do you have the {t} in stock?",
              "What is the stock of the {t}?", "Stock of the {t}?", "Tell me the stock of the {t}."],
    "weight": ["How much does the {t} weigh?", "What does the {t} weigh?", "What is the weight of the {t}?",
               "Weight of the {t}?", "How heavy is the {t}?", "Tell me the weight of the {t}."],
}
DESCRIBE = ["Tell me about the {t}.", "Describe the {t}.", "What do you know about the {t}?",
            "Give me all details of the {t}.", "What is the {t}?", "I want to know more about the {t}."]
PAIRS = ["What are the {x} and the {y} of the {t}?", "Tell me the {x} and {y} of the {t}.",
         "I need the {x} and the {y} of the {t}.", "Give me {x} and {y} of the {t}."]
COMPARE = ["Which is cheaper, the {t} or the {u}?", "Is the {t} cheaper than the {u}?",
           "What costs less, the {t} or the {u}?", "Compare the prices of the {t} and the {u}."]
CONFIRM = ["Is the {t} {c}?", "Is it true that the {t} is {c}?", "Does the {t} come in {c}?"]
BY_MAKER = ["Which products are made by {m}?", "What does {m} make?", "List the products of {m}.",
            "Show me everything from {m}.", "What do you have from {m}?"]
BY_NOUN = ["Which {n}s do you have?", "List all {n}s.", "Show me your {n}s.", "What {n}s are there?",
           "List the {n}s with their prices."]
CHEAPEST = ["Which {n} is the cheapest?", "What is the cheapest {n}?", "Find me the cheapest {n}.",
            "Which {n} costs the least?"]
UNKNOWN = "I am sorry, that product is not in the catalogue, so I cannot tell you anything about it."


def about(question, product, attributes):
    """The turn that states one or more attributes of one product."""
    stated = [statement(product, a) for a in attributes]
    sentences = " ".join(s for s, _ in stated)
    names = listing([f"the {a}" for a in attributes])
    return Turn([user(question)],
                f"The user asks for {names} of the {product.title}. It is in the catalogue. {sentences}",
                sentences, {"answer": [w for _, words in stated for w in words]},
                facts={"product": product, "attributes": attributes})


def unknown(question):
    """The turn for a product that does not exist."""
    return Turn([user(question)], "The user asks for a product that is not in the catalogue.",
                UNKNOWN, {"answer": ["not in the catalogue"]})


def compare(rng):
    """Which of two products is cheaper."""
    p, q = rng.sample(PRODUCTS, 2)
    cheap, dear = sorted((p, q), key=lambda x: x.price)
    content = f"The {cheap.title} is cheaper: {cheap.price} euros against {dear.price} euros."
    return Turn([user(dress(rng, rng.choice(COMPARE).format(t=p.title, u=q.title)))],
                f"{statement(p, 'price')[0]} {statement(q, 'price')[0]} {cheap.price} is less than {dear.price}.",
                content, {"answer": [f"{cheap.title} is cheaper"]})


def confirm(rng):
    """Whether a product has a colour; the colour is said before the verdict."""
    p = rng.choice(PRODUCTS)
    colour = p.colour if rng.random() < 0.5 else rng.choice([c for c in COLOURS if c != p.colour])
    verdict = "yes" if colour == p.colour else "no"
    compared = f"as asked: {colour} is {colour}" if verdict == "yes" else f"not as asked: {p.colour} is not {colour}"
    return Turn([user(dress(rng, rng.choice(CONFIRM).format(t=p.title, c=colour)))],
                f"The user asks whether the {p.title} is {colour}. The {p.title} is {p.colour}, {compared}.",
                f"The {p.title} is {p.colour}, so the answer is {verdict}.", {"answer": [f"{p.colour}, so the answer is {verdict}"]})


def by_maker(rng):
    """Everything one maker makes."""
    maker = rng.choice(MAKERS)
    titles = [p.title for p in of_maker(maker)]
    return Turn([user(dress(rng, rng.choice(BY_MAKER).format(m=maker)))],
                f"The user asks for the products made by {maker}. There are {len(titles)} of them.",
                f"{maker} makes these products:\n" + "\n".join(f"- {t}" for t in titles),
                {"answer": titles}, facts={"product": of_maker(maker)[0]})


def by_noun(rng):
    """All products of one sort with their prices."""
    noun = rng.choice(NOUNS)
    lines = [f"- {p.title}: {p.price} euros" for p in of_noun(noun)]
    return Turn([user(dress(rng, rng.choice(BY_NOUN).format(n=noun)))],
                f"The user asks for all {noun}s. There are {len(lines)} of them.",
                f"We have these {noun}s:\n" + "\n".join(lines), {"answer": [line[2:] for line in lines]})


def cheapest(rng):
    """The cheapest product of one sort."""
    noun = rng.choice(NOUNS)
    best = min(of_noun(noun), key=lambda p: p.price)
    prices = " ".join(statement(p, "price")[0] for p in of_noun(noun))
    return Turn([user(dress(rng, rng.choice(CHEAPEST).format(n=noun)))],
                f"{prices} The lowest price is {best.price} euros.",
                f"The cheapest {noun} is the {best.title} for {best.price} euros.",
                {"answer": [best.title, str(best.price)]}, facts={"product": best, "attributes": ["price"]})


def single(rng, product=None):
    """One attribute of one product."""
    product, attribute = product or rng.choice(PRODUCTS), rng.choice(ATTRIBUTES)
    question = rng.choice(ASK[attribute]).format(t=product.title)
    return about(dress(rng, question), product, [attribute])


def make(rng):
    """One question about the catalogue."""
    roll = rng.random()
    if roll < 0.34:
        return single(rng)
    if roll < 0.46:
        product, pair = rng.choice(PRODUCTS), rng.sample(ATTRIBUTES, 2)
        return about(dress(rng, rng.choice(PAIRS).format(t=product.title, x=pair[0], y=pair[1])), product, pair)
    if roll < 0.60:
        product = rng.choice(PRODUCTS)
        order = ["colour", "maker", "price", "weight", "stock"]
        return about(dress(rng, rng.choice(DESCRIBE).format(t=product.title)), product, order)
    if roll < 0.74:
        attribute = rng.choice(ATTRIBUTES)
        forms = ASK[attribute] + DESCRIBE
        return unknown(dress(rng, rng.choice(forms).format(t=unknown_title(rng))))
    return rng.choice([compare, compare, confirm, confirm, by_maker, by_noun, cheapest])(rng)
