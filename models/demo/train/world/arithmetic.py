"""Sums worked out digit by digit, as in school."""

from .phrasing import PEOPLE, WORDS, dress
from .turn import Turn, user

PLACES = ["Ones", "Tens", "Hundreds", "Thousands", "Ten thousands", "Hundred thousands"]


def _digits(n, count):
    return [n // 10**i % 10 for i in range(count)]


def add_lines(a, b):
    """Working of a + b for a, b >= 0."""
    count = max(len(str(a)), len(str(b)))
    lines, carry = [], 0
    for place, x, y in zip(PLACES, _digits(a, count), _digits(b, count)):
        total = x + y + carry
        lines.append(f"{place}: {x} + {y} + {carry} = {total}, write {total % 10}, carry {total // 10}.")
        carry = total // 10
    return lines + [f"So {a} + {b} = {a + b}."]


def subtract_lines(a, b):
    """Working of a - b; a smaller a is turned round first."""
    if a < b:
        return [f"{a} is less than {b}, so the result is negative."] + subtract_lines(b, a) + [
            f"So {a} - {b} = {a - b}."
        ]
    lines, borrow = [], 0
    count = len(str(a))
    for place, x, y in zip(PLACES, _digits(a, count), _digits(b, count)):
        low = x - y - borrow < 0
        top = x + 10 * low
        lines.append(f"{place}: {top} - {y} - {borrow} = {top - y - borrow}, borrow {int(low)}.")
        borrow = int(low)
    return lines + [f"So {a} - {b} = {a - b}."]


def times_digit_lines(a, d):
    """Working of a x d for one digit d."""
    lines, carry = [], 0
    for place, x in zip(PLACES, _digits(a, len(str(a)))):
        total = x * d + carry
        lines.append(f"{place}: {x} x {d} + {carry} = {total}, write {total % 10}, carry {total // 10}.")
        carry = total // 10
    return lines + [f"So {a} x {d} = {a * d}."]


def multiply_lines(a, b):
    """Working of a x b, one partial product per digit of b."""
    if b < 10:
        return times_digit_lines(a, b)
    tens, ones = b // 10 * 10, b % 10
    lines = times_digit_lines(a, ones) + times_digit_lines(a, tens // 10)
    lines.append(f"So {a} x {tens} = {a * tens}.")
    return lines + add_lines(a * tens, a * ones) + [f"So {a} x {b} = {a * b}."]


def divide_lines(a, d):
    """Long division of a by one digit d, with remainder."""
    lines, rest = [], 0
    for x in map(int, str(a)):
        top = 10 * rest + x
        lines.append(f"{top} / {d} = {top // d}, remainder {top % d}.")
        rest = top % d
    return lines + [f"So {a} / {d} = {quotient(a, d)}."]


def quotient(a, d):
    """`12` or `12 remainder 1`."""
    return str(a // d) if a % d == 0 else f"{a // d} remainder {a % d}"


def number(rng, digits):
    """A number of one to `digits` digits, lengths equally likely."""
    n = rng.randint(1, digits)
    return rng.randint(10 ** (n - 1) if n > 1 else 1, 10**n - 1)


ASK = {
    "+": ["What is {a} + {b}?", "{a} + {b} = ?", "{a}+{b}", "What is {a} plus {b}?", "Add {a} and {b}.",
          "Calculate {a} + {b}.", "Can you add {b} to {a}?", "What is the sum of {a} and {b}?",
          "How much is {a} plus {b}?"],
    "-": ["What is {a} - {b}?", "{a} - {b} = ?", "{a}-{b}", "What is {a} minus {b}?",
          "Subtract {b} from {a}.", "Calculate {a} - {b}.", "What is the difference {a} - {b}?",
          "How much is {a} minus {b}?"],
    "x": ["What is {a} x {b}?", "{a} x {b} = ?", "{a}*{b}", "What is {a} times {b}?",
          "Multiply {a} by {b}.", "Calculate {a} * {b}.", "What is the product of {a} and {b}?",
          "How much is {a} times {b}?"],
    "/": ["What is {a} / {b}?", "{a} / {b} = ?", "{a}/{b}", "Divide {a} by {b}.",
          "Calculate {a} / {b}.", "What is {a} divided by {b}?", "How much is {a} divided by {b}?"],
}
STORIES = {
    "+": ["{p} has {a} {w}s and gets {b} more. How many {w}s does {p} have now?",
          "There are {a} {w}s in one box and {b} in another. How many {w}s are there together?",
          "{p} read {a} pages yesterday and {b} pages today. How many pages is that?"],
    "-": ["{p} has {a} {w}s and gives away {b}. How many {w}s are left?",
          "A shop had {a} {w}s and sold {b}. How many {w}s remain?",
          "{p} saved {a} euros and spends {b}. How many euros are left?"],
    "x": ["A box holds {a} {w}s. How many {w}s are in {b} boxes?",
          "{p} buys {b} {w}s for {a} euros each. What does {p} pay?",
          "{p} walks {a} minutes a day. How many minutes is that in {b} days?"],
    "/": ["{p} shares {a} {w}s among {b} friends. How many does each get?",
          "{a} {w}s are packed in boxes of {b}. How many boxes are full?"],
}
WORKING = {"+": add_lines, "-": subtract_lines, "x": multiply_lines, "/": divide_lines}
STORY_NOUNS = [w for w in WORDS if w in (
    "apple carrot lemon onion pencil letter ticket book song puzzle star stone photo bike bird cake".split())]


def operands(rng, op):
    """Two operands the school methods above cover."""
    if op == "+":
        return number(rng, 4), number(rng, 4)
    if op == "-":
        a, b = number(rng, 4), number(rng, 4)
        return (a, b) if rng.random() < 0.12 else (max(a, b), min(a, b))
    if op == "x":
        return (number(rng, 3), rng.randint(2, 9)) if rng.random() < 0.6 else (rng.randint(11, 99), rng.randint(11, 99))
    return number(rng, 4), rng.randint(2, 9)


def result(op, a, b):
    """The answer as text."""
    return quotient(a, b) if op == "/" else str({"+": a + b, "-": a - b, "x": a * b}[op])


def solved(question, expression, lines, answer, **facts):
    """A turn whose working is thought, or shown in the content when not thinking."""
    return Turn([user(question)], "\n".join([f"Work out {expression}."] + lines),
                f"The answer is {answer}.", {"answer": [f"The answer is {answer}."]}, facts=facts, shown=True)


def make(rng):
    """One sum: two operands asked plainly or as a story, or three in a chain."""
    roll = rng.random()
    if roll < 0.15:
        a, b, c = number(rng, 3), number(rng, 3), number(rng, 2)
        if rng.random() < 0.5:
            c = min(c, a + b)
            expression, value = f"{a} + {b} - {c}", a + b - c
            lines = add_lines(a, b) + subtract_lines(a + b, c)
        else:
            b = rng.randint(2, 9)
            expression, value = f"{a} x {b} + {c}", a * b + c
            lines = times_digit_lines(a, b) + add_lines(a * b, c)
        question = rng.choice(["What is {e}?", "Calculate {e}.", "{e} = ?", "How much is {e}?"]).format(e=expression)
        lines.append(f"So {expression} = {value}.")
        return solved(dress(rng, question), expression, lines, str(value), value=value)
    op = rng.choice("++--xx/")
    a, b = operands(rng, op)
    story = roll < 0.4
    if story and op == "-":
        a, b = max(a, b), min(a, b)
    form = rng.choice((STORIES if story else ASK)[op])
    question = form.format(a=a, b=b, p=rng.choice(PEOPLE), w=rng.choice(STORY_NOUNS))
    answer = result(op, a, b)
    value = a // b if op == "/" else int(answer)
    return solved(dress(rng, question), f"{a} {op} {b}", WORKING[op](a, b), answer, value=value)
