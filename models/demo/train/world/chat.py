"""Small talk: greetings, what the model can do, thanks, things it does not know, and chance."""

from .phrasing import CITIES, PEOPLE, WORDS, dress
from .turn import Turn, user

GREETINGS = ["Hi", "Hello", "Hey", "Good morning", "Good evening", "Good afternoon", "Hi there", "Hello there", "Hey there"]
AFTER = ["", "!", ".", ", how are you?", "! How are you?", ", are you there?", "! Are you there?", ", nice to meet you.",
         "! Nice to meet you.", ", I have a question.", ", can you help me?", "! Can you help me?", ", what's up?"]
HELP = ["What can you do?", "What can you help me with?", "How can you help me?", "What are you able to do?",
        "What are you good at?", "What can I ask you?", "Help", "Tell me what you can do.", "Which tasks can you do?",
        "What do you know?", "What should I ask you?", "Show me what you can do."]
WHO = ["Who are you?", "What are you?", "What is your name?", "Tell me about yourself.", "Are you a robot?",
       "Are you human?", "Which model are you?", "Introduce yourself.", "Who am I talking to?", "What model is this?"]
THANKS = ["Thanks", "Thank you", "Thanks a lot", "Thank you very much", "Great, thanks", "Perfect, thank you",
          "That was helpful", "Good job", "Nice work", "Awesome", "Cool, thanks", "That helps"]
BYE = ["Bye", "Goodbye", "See you", "See you later", "Good night", "Bye for now", "That is all", "I have to go"]
END = ["", ".", "!"]
TOPICS = (
    "the capital of {c}|the weather on the moon|the history of {c}|the mayor of {c}|quantum physics|"
    "the stock market|football|politics|the best film|a famous {w}|the meaning of life|cooking {w}|"
    "the news|the age of {p}|the address of {p}|the phone number of {p}|a {w} in {c}|how a {w} works|"
    "hotels in {c}|flights to {c}|the price of a {w} in {c}|medicine|law|religion|the population of {c}"
).split("|")
UNKNOWN = ["What is {t}?", "Tell me about {t}.", "What do you know about {t}?", "Explain {t}.",
           "Can you tell me about {t}?", "I want to know about {t}.", "Do you know {t}?"]
CHANCE = {
    "die": (["Roll a die.", "Roll a dice.", "Throw a die for me.", "Can you roll a die?", "Roll the die."],
            [f"You rolled a {i}." for i in range(1, 7)]),
    "coin": (["Flip a coin.", "Toss a coin.", "Heads or tails?", "Can you flip a coin?", "Flip a coin for me."],
             ["It is heads.", "It is tails."]),
    "digit": (["Pick a number from 0 to 9.", "Give me a random digit.", "Say a number between 0 and 9.",
               "Choose a digit."], [f"I pick {i}." for i in range(10)]),
}
ABILITIES = (
    "I can do sums step by step, write small Python functions, answer questions about the catalogue, "
    "use the tools you give me and talk about their results. Try one of them!"
)


def _say(question, reasoning, content, answer):
    return Turn([user(question)], reasoning, content, {"answer": [answer]})


def greeting(rng):
    """Hello and how are you."""
    return _say(dress(rng, rng.choice(GREETINGS) + rng.choice(AFTER)), "The user greets me. I greet back and offer help.",
                "Hello! I am fine, thank you. How can I help you?", "How can I help you")


def ability(rng):
    """What can you do?"""
    return _say(dress(rng, rng.choice(HELP)), "The user asks what I can do. I list my skills.", ABILITIES, "step by step")


def identity(rng):
    """Who are you?"""
    return _say(dress(rng, rng.choice(WHO)), "The user asks who I am. I am the demo model of volley.",
                "I am the demo model of volley, a very small language model that lives in a very small world.",
                "demo model of volley")


def thanks(rng):
    """Thank you."""
    return _say(dress(rng, rng.choice(THANKS) + rng.choice(END)), "The user thanks me. I answer politely.",
                "You are welcome! Is there anything else I can do for you?", "welcome")


def farewell(rng):
    """Goodbye."""
    return _say(dress(rng, rng.choice(BYE) + rng.choice(END)), "The user says goodbye. I say goodbye too.",
                "Goodbye! It was nice talking to you.", "Goodbye")


def refusal(rng):
    """Things outside the small world."""
    topic = rng.choice(TOPICS).format(c=rng.choice(CITIES), w=rng.choice(WORDS), p=rng.choice(PEOPLE))
    return _say(dress(rng, rng.choice(UNKNOWN).format(t=topic)),
                "The user asks for something outside my small world. I do not know it, so I say so.",
                "I am sorry, I do not know that. I only know sums, small Python functions, my catalogue and "
                "the tools you give me.", "I do not know that")


def chance(rng):
    """Dice and coins: the one place where the reply is not settled by the prompt."""
    questions, answers = CHANCE[rng.choice(list(CHANCE))]
    return Turn([user(dress(rng, rng.choice(questions)))], "The user wants chance to decide.", rng.choice(answers),
                {"one_of": answers})


def make(rng):
    """One bit of small talk."""
    pick = [greeting] * 4 + [ability] * 2 + [identity] * 2 + [thanks] * 2 + [farewell] + [refusal] * 5 + [chance]
    return rng.choice(pick)(rng)
