"""Small Python functions: a family, a function name and constants make one task."""

from .phrasing import WORDS, dress
from .turn import Turn, user

VERBS = "make get find count check build apply compute run give take pick show test use".split()
NOUNS = "value result total items words text list part number data thing step case score answer".split()
NAMES = "f g foo bar scale shift helper solve work process handle transform convert update".split()

# (task, parameters, expression, what it does, argument lists to try); {n}, {m} are constants, {c} a letter.
ONE_LINERS = [
    ("adds {n} to its argument", "x", "x + {n}", "x plus {n}", [[3], [-5]]),
    ("subtracts {n} from its argument", "x", "x - {n}", "x minus {n}", [[30], [2]]),
    ("multiplies its argument by {n}", "x", "x * {n}", "x times {n}", [[4], [-1]]),
    ("returns the remainder of its argument divided by {n}", "x", "x % {n}", "x modulo {n}", [[17], [100]]),
    ("checks whether its argument is divisible by {n}", "x", "x % {n} == 0", "whether {n} divides x", [[12], [35]]),
    ("checks whether its argument is greater than {n}", "x", "x > {n}", "whether x is above {n}", [[5], [50]]),
    ("checks whether a number is even", "x", "x % 2 == 0", "whether x is even", [[4], [7]]),
    ("checks whether a number is odd", "x", "x % 2 == 1", "whether x is odd", [[4], [7]]),
    ("returns the square of a number", "x", "x * x", "x times x", [[5], [-3]]),
    ("returns a number to the power of {n}", "x", "x ** {n}", "x to the power of {n}", [[2], [1]]),
    ("returns the larger of two numbers", "a, b", "a if a > b else b", "the larger of a and b", [[2, 9], [7, 1]]),
    ("returns the smaller of two numbers", "a, b", "a if a < b else b", "the smaller of a and b", [[2, 9], [7, 1]]),
    ("adds two numbers", "a, b", "a + b", "the sum of a and b", [[2, 3], [10, -4]]),
    ("multiplies two numbers", "a, b", "a * b", "the product of a and b", [[2, 3], [10, -4]]),
    ("returns the distance between two numbers", "a, b", "abs(a - b)", "the absolute difference of a and b", [[2, 9], [7, 1]]),
    ("limits a number to the range from {n} to {m}", "x", "max({n}, min({m}, x))", "x kept between {n} and {m}", [[1], [500]]),
    ("converts degrees celsius to fahrenheit", "c", "c * 9 / 5 + 32", "the temperature in fahrenheit", [[0], [100]]),
    ("reverses a string", "text", "text[::-1]", "the text backwards", [["abc"], ["level"]]),
    ("repeats a string {n} times", "text", "text * {n}", "the text {n} times over", [["ab"], ["x"]]),
    ("returns the first {n} characters of a string", "text", "text[:{n}]", "the first {n} characters", [["abcdefghij"], ["xy"]]),
    ("returns the last {n} characters of a string", "text", "text[-{n}:]", "the last {n} characters", [["abcdefghij"], ["xy"]]),
    ("counts the letter {c} in a string", "text", 'text.count("{c}")', "how often {c} occurs", [["banana"], ["tree house"]]),
    ("removes the letter {c} from a string", "text", 'text.replace("{c}", "")', "the text without {c}", [["banana"], ["tree house"]]),
    ("checks whether a string starts with {c}", "text", 'text.startswith("{c}")', "whether the text starts with {c}", [["apple"], ["tree"]]),
    ("checks whether a string is a palindrome", "text", "text == text[::-1]", "whether the text reads the same backwards", [["level"], ["abc"]]),
    ("turns a string into upper case", "text", "text.upper()", "the text in capital letters", [["abc"], ["Level"]]),
    ("counts the words in a string", "text", "len(text.split())", "the number of words", [["a b c"], ["one two"]]),
    ("returns the sum of a list", "items", "sum(items)", "the sum of the items", [[[1, 2, 3]], [[5]]]),
    ("returns the largest item of a list", "items", "max(items)", "the largest item", [[[1, 9, 3]], [[5]]]),
    ("returns the smallest item of a list", "items", "min(items)", "the smallest item", [[[4, 2, 3]], [[5]]]),
    ("returns the average of a list", "items", "sum(items) / len(items)", "the mean of the items", [[[1, 2, 3]], [[5]]]),
    ("sorts a list", "items", "sorted(items)", "the items in rising order", [[[3, 1, 2]], [[5]]]),
    ("sorts a list in reverse", "items", "sorted(items, reverse=True)", "the items in falling order", [[[3, 1, 2]], [[5]]]),
    ("returns the first {n} items of a list", "items", "items[:{n}]", "the first {n} items", [[[1, 2, 3, 4, 5, 6]], [[5]]]),
    ("keeps the items of a list greater than {n}", "items", "[x for x in items if x > {n}]", "the items above {n}", [[[1, 20, 60]], [[5]]]),
    ("keeps the items of a list less than {n}", "items", "[x for x in items if x < {n}]", "the items below {n}", [[[1, 20, 60]], [[5]]]),
    ("adds {n} to every item of a list", "items", "[x + {n} for x in items]", "every item plus {n}", [[[1, 2]], [[]]]),
    ("multiplies every item of a list by {n}", "items", "[x * {n} for x in items]", "every item times {n}", [[[1, 2]], [[]]]),
    ("keeps the even numbers of a list", "items", "[x for x in items if x % 2 == 0]", "the even items", [[[1, 2, 3, 4]], [[5]]]),
    ("counts how often {n} occurs in a list", "items", "items.count({n})", "the number of items equal to {n}", [[[1, 2, 2, 7]], [[5]]]),
    ("lists the numbers from 1 to {n}", "", "list(range(1, {n} + 1))", "the numbers from 1 to {n}", [[]]),
    ("lists the squares from 1 to {n}", "", "[x * x for x in range(1, {n} + 1)]", "the squares up to {n} times {n}", [[]]),
]
# Families with a body of several lines: (task, parameters, body, what it does, argument lists).
LOOPS = [
    ("returns the factorial of a number", "n",
     ["result = 1", "for i in range(2, n + 1):", "    result *= i", "return result"],
     "the product of the numbers up to n", [[5], [0]]),
    ("returns the Fibonacci number at an index", "n",
     ["a, b = 0, 1", "for _ in range(n):", "    a, b = b, a + b", "return a"],
     "the Fibonacci number at index n", [[7], [0]]),
    ("counts the vowels in a string", "text",
     ["count = 0", "for letter in text:", '    if letter in "aeiou":', "        count += 1", "return count"],
     "the number of vowels", [["banana"], ["xyz"]]),
    ("returns the greatest common divisor of two numbers", "a, b",
     ["while b:", "    a, b = b, a % b", "return a"], "the greatest common divisor", [[12, 18], [7, 5]]),
    ("checks whether a number is prime", "n",
     ["if n < 2:", "    return False", "for i in range(2, n):", "    if n % i == 0:", "        return False", "return True"],
     "whether n is prime", [[7], [9]]),
    ("removes duplicates from a list", "items",
     ["result = []", "for x in items:", "    if x not in result:", "        result.append(x)", "return result"],
     "the items without repeats", [[[1, 2, 1]], [[5]]]),
    ("counts down from {n} to 1", "",
     ["result = []", "for i in range({n}, 0, -1):", "    result.append(i)", "return result"],
     "the numbers from {n} down to 1", [[]]),
    ("sums the numbers from 1 to {n}", "",
     ["total = 0", "for i in range(1, {n} + 1):", "    total += i", "return total"],
     "the sum of the numbers up to {n}", [[]]),
]
ASK = [
    "Write a Python function called {f} that {t}.", "Write a function {f} that {t}.",
    "Give me a Python function named {f} that {t}.", "Can you write a Python function {f} that {t}?",
    "I need a Python function {f} that {t}.", "Define a function {f} in Python that {t}.",
    "Code a function called {f} that {t}.", "How do I write a Python function {f} that {t}?",
]


def function_name(rng):
    """A plain or compound function name."""
    roll = rng.random()
    if roll < 0.3:
        return rng.choice(NAMES)
    return f"{rng.choice(VERBS)}_{rng.choice(NOUNS if roll < 0.7 else WORDS)}"


def code(name, parameters, body):
    """A fenced function definition."""
    lines = "\n".join("    " + line for line in body)
    return f"```python\ndef {name}({parameters}):\n{lines}\n```"


def reply(name, task, parameters, body, returns):
    """Reasoning and content that present the function."""
    takes = f"It takes {parameters.replace(', ', ' and ')}." if parameters else "It takes nothing."
    reasoning = f"The user wants a function {name} that {task}. {takes} It returns {returns}."
    return reasoning, f"{code(name, parameters, body)}\n\nThe function `{name}` returns {returns}."


def task(rng, family=None):
    """A family with its constants filled in: (task, parameters, body, returns, arguments)."""
    family = family or rng.choice(ONE_LINERS + LOOPS)
    n, letter = rng.randint(2, 60), rng.choice("abcdefghijklmnoprstuvw")
    if "power" in family[0] or "repeats" in family[0] or "characters" in family[0] or "first {n} items" in family[0]:
        n = rng.randint(2, 9)
    values = {"n": n, "m": n + rng.randint(1, 40), "c": letter}

    def fill(text):
        for key, value in values.items():
            text = text.replace("{" + key + "}", str(value))
        return text

    body = family[2] if isinstance(family[2], list) else ["return " + family[2]]
    return fill(family[0]), family[1], [fill(line) for line in body], fill(family[3]), family[4]


def turn_for(question, name, filled):
    """The turn that answers `question` with a filled family."""
    reasoning, content = reply(name, *filled[:4])
    return Turn([user(question)], reasoning, content,
                {"content": content, "function": name, "arguments": filled[4]},
                facts={"function": name, "filled": filled})


def make(rng):
    """One request for a function."""
    filled, name = task(rng), function_name(rng)
    return turn_for(dress(rng, rng.choice(ASK).format(f=name, t=filled[0]), casual=False), name, filled)
