"""Questions that only make sense after what was said before."""

from . import arithmetic, facts, python_tasks, tool_results, tools
from .catalogue import ATTRIBUTES, PRODUCTS, statement
from .phrasing import PEOPLE, dress
from .turn import Turn, user

ITS = {
    "price": ["What does it cost?", "How much is it?", "And its price?", "And what does it cost?"],
    "colour": ["What colour is it?", "And its colour?", "Which colour does it have?"],
    "maker": ["Who makes it?", "And its maker?", "Which company makes it?"],
    "stock": ["Is it in stock?", "How many are in stock?", "And its stock?"],
    "weight": ["How heavy is it?", "And its weight?", "What does it weigh?"],
}
OTHER = ["And the {t}?", "What about the {t}?", "And for the {t}?", "The same for the {t}.", "How about the {t}?"]
TOTAL = ["How much are {n} of them?", "What do {n} of them cost?", "I want {n} of them. What do I pay?", "And {n} of them?"]
THEN = {"+": ["Add {b} to that.", "Now add {b}.", "Plus {b}?", "And {b} more?"],
        "-": ["Subtract {b} from that.", "Take away {b}.", "Minus {b}?"],
        "x": ["Multiply that by {b}.", "Now times {b}.", "And times {b}?"]}
RENAME = ["Rename the function to {f}.", "Call it {f} instead.", "Can you name it {f}?", "Use the name {f}."]
REPLACE = ["Use {n} instead of {m}.", "Change {m} to {n}.", "Now with {n} instead of {m}.", "Replace {m} by {n}."]
MY_NAME = ["My name is {p}.", "I am {p}.", "I'm {p}.", "Call me {p}.", "Hello, my name is {p}.", "Hi, I am {p}."]
WHO_AM_I = ["What is my name?", "Do you know my name?", "Who am I?", "What am I called?", "Do you remember my name?"]
FIRST = ["What did I ask first?", "What was my first question?", "Repeat my first message.", "What did I say first?"]


def its_attribute(rng, _kit, _thinking):
    """Another attribute of the same product."""
    lead = facts.single(rng)
    attribute = rng.choice([a for a in ATTRIBUTES if a not in lead.facts["attributes"]])
    return [lead, facts.about(dress(rng, rng.choice(ITS[attribute])), lead.facts["product"], [attribute])]


def other_product(rng, _kit, _thinking):
    """The same attribute of another product."""
    lead = facts.single(rng)
    other = rng.choice([p for p in PRODUCTS if p != lead.facts["product"]])
    return [lead, facts.about(dress(rng, rng.choice(OTHER).format(t=other.title)), other, lead.facts["attributes"])]


def total_price(rng, _kit, _thinking):
    """The price of several pieces."""
    product, n = rng.choice(PRODUCTS), rng.randint(2, 9)
    lead = facts.about(dress(rng, rng.choice(facts.ASK["price"]).format(t=product.title)), product, ["price"])
    total = product.price * n
    lines = [statement(product, "price")[0]] + arithmetic.times_digit_lines(product.price, n)
    return [lead, Turn([user(dress(rng, rng.choice(TOTAL).format(n=n)))], "\n".join(lines),
                       f"Together they cost {total} euros.", {"answer": [f"cost {total} euros"]}, shown=True)]


def next_sum(rng, _kit, _thinking):
    """One more operation on the last result."""
    lead = arithmetic.make(rng)
    while not 0 <= lead.facts["value"] < 10000:
        lead = arithmetic.make(rng)
    value, op = lead.facts["value"], rng.choice("+-x")
    if op == "x":
        b = rng.randint(2, 9)
    elif op == "-":
        b = rng.randint(0, min(value, 999))
    else:
        b = arithmetic.number(rng, 3)
    question = dress(rng, rng.choice(THEN[op]).format(b=b))
    answer = arithmetic.result(op, value, b)
    return [lead, arithmetic.solved(question, f"{value} {op} {b}", arithmetic.WORKING[op](value, b), answer, value=int(answer))]


def rename(rng, _kit, _thinking):
    """The same function under another name."""
    lead = python_tasks.make(rng)
    name = python_tasks.function_name(rng)
    return [lead, python_tasks.turn_for(dress(rng, rng.choice(RENAME).format(f=name), casual=False), name, lead.facts["filled"])]


def new_constant(rng, _kit, _thinking):
    """The same function with another number."""
    families = [f for f in python_tasks.ONE_LINERS if "{n}" in f[2] and "{m}" not in f[2]]
    family, name = rng.choice(families), python_tasks.function_name(rng)
    lead, again = python_tasks.task(rng, family), python_tasks.task(rng, family)
    while lead[0] == again[0]:
        again = python_tasks.task(rng, family)
    old, new = [[w for w in f[0].split() if w.isdigit()][-1] for f in (lead, again)]
    asked = dress(rng, rng.choice(python_tasks.ASK).format(f=name, t=lead[0]), casual=False)
    question = dress(rng, rng.choice(REPLACE).format(n=new, m=old), casual=False)
    return [python_tasks.turn_for(asked, name, lead), python_tasks.turn_for(question, name, again)]


def my_name(rng, kit, thinking):
    """The user's name, told a little earlier."""
    person = rng.choice(PEOPLE)
    told = Turn([user(rng.choice(MY_NAME).format(p=person))], f"The user is called {person}. I greet {person}.",
                f"Nice to meet you, {person}! How can I help you?", {"answer": [person]})
    between = [facts.make(rng)] if rng.random() < 0.4 else []
    return [told] + between + [
        Turn([user(dress(rng, rng.choice(WHO_AM_I)))], f"The user told me the name {person}.",
             f"Your name is {person}.", {"answer": [person]})]


def first_message(rng, kit, thinking):
    """What the user said first; it must open the chat."""
    lead = rng.choice([facts.make, arithmetic.make])(rng)
    between = [facts.make(rng)] if rng.random() < 0.4 else []
    text = lead.prompt[0]["content"]
    return [lead] + between + [
        Turn([user(dress(rng, rng.choice(FIRST)))], "The user wants the first message of this chat again.",
             f"Your first message was: {text}", {"content": f"Your first message was: {text}"}, facts={"opens": True})]


def same_tool(rng, kit, thinking):
    """The same tool for another city."""
    usable = [d for d in kit if d.tool.again]
    if not usable:
        return its_attribute(rng, kit, thinking)
    lead = tool_results.make(rng, [rng.choice(usable)], thinking)
    declared, values = lead.facts["declared"], lead.facts["values"][-1]
    city = declared.tool.params["city"].draw(rng)
    question = dress(rng, declared.tool.again.format(city=city), casual=False)
    return [lead, tools.calling([user(question)], [declared.call({**values, "city": city})])]


FORMS = [its_attribute, its_attribute, other_product, other_product, total_price, next_sum, next_sum, rename, new_constant,
         my_name, first_message, same_tool]


def make(rng, kit, thinking):
    """A lead and what follows from it; the last turn is the one asked."""
    turns = rng.choice(FORMS)(rng, kit, thinking)
    turns[-1].key = "\n".join(t.key for t in turns)
    return turns
