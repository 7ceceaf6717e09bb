"""The invented catalogue: sixty products with five attributes each, fixed by one seed."""

import random
from dataclasses import dataclass

NOUNS = "lamp kettle chair clock radio bottle basket blanket mirror tent drum spoon".split()
HEADS = "Nor Tes Bral Quin Mel Dov Har Pel Sol Vin Kar Lum".split()
TAILS = "vik sel den to ra mo lin dar by ko".split()
COLOURS = "red green blue black white yellow grey brown orange purple".split()
MAKERS = [
    "Halden Works", "Brook and Sons", "Ostra", "Mill Lane", "Kestrel Goods", "Tamar Glass",
    "Fenwick", "Alder House",
]
NAMES = [head + tail for head in HEADS for tail in TAILS]


@dataclass(frozen=True)
class Product:
    """Price in euros, weight in grams, stock in pieces."""

    name: str
    noun: str
    price: int
    colour: str
    maker: str
    stock: int
    weight: int

    @property
    def title(self):
        """As in `Norvik lamp`."""
        return f"{self.name} {self.noun}"


def _build():
    rng = random.Random("catalogue")
    names = rng.sample(NAMES, 60)
    prices = rng.sample(range(4, 96), 60)
    return [
        Product(
            name=name,
            noun=NOUNS[i % len(NOUNS)],
            price=prices[i],
            colour=rng.choice(COLOURS),
            maker=MAKERS[i % 8] if i < 56 else rng.choice(MAKERS),
            stock=0 if rng.random() < 0.1 else rng.randint(1, 60),
            weight=50 * rng.randint(2, 60),
        )
        for i, name in enumerate(names)
    ]


PRODUCTS = _build()
TITLES = {p.title for p in PRODUCTS}


def of_noun(noun):
    """All products of one noun, in catalogue order."""
    return [p for p in PRODUCTS if p.noun == noun]


def of_maker(maker):
    """All products of one maker, in catalogue order."""
    return [p for p in PRODUCTS if p.maker == maker]


def unknown_title(rng):
    """A title that looks like a product and is none."""
    while True:
        title = f"{rng.choice(NAMES)} {rng.choice(NOUNS)}"
        if title not in TITLES:
            return title


ATTRIBUTES = ["price", "colour", "maker", "stock", "weight"]


def statement(product, attribute):
    """The one sentence that states an attribute, and the words that must occur in it."""
    t = product.title
    if attribute == "price":
        return f"The {t} costs {product.price} euros.", [str(product.price)]
    if attribute == "colour":
        return f"The {t} is {product.colour}.", [product.colour]
    if attribute == "maker":
        return f"The {t} is made by {product.maker}.", [product.maker]
    if attribute == "weight":
        return f"The {t} weighs {product.weight} grams.", [str(product.weight)]
    if product.stock == 0:
        return f"The {t} is sold out.", ["sold out"]
    return f"There are {product.stock} of the {t} in stock.", [str(product.stock)]
