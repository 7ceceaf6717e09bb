"""The tools a chat may declare: names, typed parameters, requests that need them, and results.

A request form uses parameter keys in braces; `fixed` holds values its wording implies.
"""

from dataclasses import dataclass, field

from .catalogue import COLOURS, NOUNS
from .phrasing import CITIES, PEOPLE, WORDS

ROOMS = ["kitchen", "office", "bedroom", "bathroom", "hall", "garage", "living room", "dining room"]
CURRENCIES = ["EUR", "USD", "GBP", "JPY", "CHF"]
LANGUAGES = ["French", "German", "Spanish", "Italian"]
CONDITIONS = ["sunny", "cloudy", "rainy", "windy", "foggy", "snowy"]


def decimal(rng, high):
    """A whole number, or one with one or two decimals."""
    roll = rng.random()
    if roll < 0.5:
        return rng.randint(1, high)
    return round(rng.uniform(1, high), 1) if roll < 0.85 else round(rng.uniform(1, high), 2)


def clock(rng):
    """A time of day such as `14:35`."""
    return f"{rng.randint(0, 23):02}:{rng.randint(0, 59):02}"


def date(rng):
    """A date such as `2027-03-14`."""
    return f"{rng.randint(2026, 2029)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"


def phrase(rng):
    """A short sentence without a full stop."""
    w = rng.sample(WORDS, 3)
    return rng.choice([
        f"the {w[0]} is in the {w[1]}", f"please bring {w[0]} and {w[1]}", f"we meet at the {w[0]}",
        f"I like the {w[0]}", f"{w[0]} at {rng.randint(1, 12)} o'clock", f"where is the {w[0]}",
        f"the {w[0]} and the {w[1]} are ready", f"do not forget the {w[0]}",
    ])


def band(rng):
    """An invented musician."""
    w = rng.sample(WORDS, 2)
    return rng.choice([f"{rng.choice(PEOPLE)} {w[0].title()}", f"The {w[0].title()} {w[1].title()}s"])


@dataclass(frozen=True)
class Param:
    """One parameter: name variants, JSON schema type, description, and how values are drawn."""

    names: tuple
    type: str
    about: str
    draw: object
    enum: tuple = ()
    items: str = ""


@dataclass(frozen=True)
class Tool:
    """`forms` are (request, fixed values); `result` draws the returned fields; `report` tells them."""

    names: tuple
    about: tuple
    params: dict
    required: tuple
    forms: tuple
    result: object
    report: str
    again: str = ""
    plural: tuple = field(default=())


def some(draw, low, high):
    """A list of distinct drawn values."""
    def values(rng):
        out = []
        while len(out) < rng.randint(low, high):
            value = draw(rng)
            if value not in out:
                out.append(value)
        return out
    return values


CITY = Param(("city", "location", "place"), "string", "Name of the city", lambda r: r.choice(CITIES))
ROOM = Param(("room", "area"), "string", "Which room", lambda r: r.choice(ROOMS))
PERSON = Param(("to", "recipient", "person"), "string", "Who receives it", lambda r: r.choice(PEOPLE))


def whole(names, about, low, high):
    """An integer parameter."""
    return Param(names, "integer", about, lambda r: r.randint(low, high))


def choice(names, about, values):
    """A string parameter with listed values."""
    return Param(names, "string", about, lambda r: r.choice(values), enum=tuple(values))


def flag(names, about):
    """A boolean parameter; forms fix its value."""
    return Param(names, "boolean", about, None)


TOOLS = [
    Tool(("get_weather", "weather_lookup", "fetch_weather"),
         ("Get the current weather", "Look up the weather in a city", "Current weather for a city"),
         {"city": CITY, "unit": choice(("unit", "units"), "Temperature unit", ["celsius", "fahrenheit"])}, ("city",),
         (("What is the weather in {city}?", {}), ("How is the weather in {city}?", {}), ("Weather in {city}?", {}),
          ("What is the weather like in {city} in {unit}?", {}), ("Tell me the weather in {city} in {unit}.", {}),
          ("What's the weather in {city}?", {}), ("Check the weather in {city}.", {})),
         lambda r, a: {"city": a["city"], "temperature": r.randint(-9, 39), "condition": r.choice(CONDITIONS), "wind": r.randint(0, 60)},
         "In {city} it is {temperature} degrees and {condition}, with a wind of {wind} km per hour.",
         again="And in {city}?", plural=("What is the weather in {city} and in {city2}?", "Weather in {city} and {city2}?")),
    Tool(("get_time", "current_time", "clock"), ("Get the local time", "Current time in a city", "Tell the time in a city"),
         {"city": CITY}, ("city",),
         (("What time is it in {city}?", {}), ("Tell me the time in {city}.", {}), ("Current time in {city}?", {})),
         lambda r, a: {"city": a["city"], "time": clock(r)}, "It is {time} in {city}.",
         again="And in {city}?", plural=("What time is it in {city} and in {city2}?",)),
    Tool(("set_timer", "start_timer", "create_timer"), ("Set a timer", "Start a timer", "Set a kitchen timer"),
         {"minutes": whole(("minutes", "duration_minutes"), "Duration in minutes", 1, 180),
          "label": Param(("label", "name"), "string", "Name of the timer", lambda r: r.choice(WORDS))}, ("minutes",),
         (("Set a timer for {minutes} minutes.", {}), ("Start a {minutes} minute timer.", {}),
          ("Set a timer for {minutes} minutes called {label}.", {}), ("Set a {minutes} minute timer named {label}.", {})),
         lambda r, a: {"timer_id": r.randint(1, 99), "ends_at": clock(r)}, "Done. Timer {timer_id} is set and ends at {ends_at}."),
    Tool(("convert_currency", "exchange", "currency_converter"),
         ("Convert money between currencies", "Exchange an amount of money", "Currency conversion"),
         {"amount": Param(("amount", "value"), "number", "Amount of money", lambda r: decimal(r, 500)),
          "source": choice(("from_currency", "source"), "Currency to convert from", CURRENCIES),
          "target": choice(("to_currency", "target"), "Currency to convert to", CURRENCIES)}, ("amount", "source", "target"),
         (("Convert {amount} {source} to {target}.", {}), ("How much is {amount} {source} in {target}?", {}),
          ("What are {amount} {source} in {target}?", {}), ("Exchange {amount} {source} for {target}.", {})),
         lambda r, a: {"amount": decimal(r, 900), "currency": a["target"], "rate": round(r.uniform(0.1, 3), 2)},
         "That is {amount} {currency} at a rate of {rate}."),
    Tool(("send_message", "text_message", "send_text"), ("Send a message", "Send a text message to a person", "Message someone"),
         {"to": PERSON, "text": Param(("text", "message", "body"), "string", "What to say", phrase),
          "urgent": flag(("urgent", "important"), "Whether it is urgent")}, ("to", "text"),
         (("Send {to} the message: {text}", {}), ("Text {to}: {text}", {}), ("Write to {to}: {text}", {}),
          ("Send {to} an urgent message: {text}", {"urgent": True}), ("Send {to} a message that is not urgent: {text}", {"urgent": False})),
         lambda r, a: {"status": "sent", "message_id": r.randint(100, 999), "to": a["to"]},
         "Done. Message {message_id} to {to} is {status}."),
    Tool(("create_list", "make_list", "new_list"), ("Create a list", "Make a new list", "Create a list of items"),
         {"title": Param(("title", "name"), "string", "Title of the list", lambda r: r.choice(WORDS)),
          "items": Param(("items", "entries"), "array", "Items of the list", some(lambda r: r.choice(WORDS), 2, 4), items="string")},
         ("title", "items"),
         (("Make a list called {title} with {items}.", {}), ("Create a {title} list with {items}.", {}),
          ("Start a list named {title}: {items}.", {})),
         lambda r, a: {"list_id": r.randint(1, 99), "count": len(a["items"])}, "Done. List {list_id} has {count} items."),
    Tool(("set_light", "control_light", "switch_light"), ("Control a light", "Switch a light", "Set the light of a room"),
         {"room": ROOM, "on": flag(("on", "state"), "Whether the light is on"),
          "brightness": whole(("brightness", "level"), "Brightness in percent", 1, 100)}, ("room", "on"),
         (("Turn on the light in the {room}.", {"on": True}), ("Turn off the light in the {room}.", {"on": False}),
          ("Switch the {room} light on.", {"on": True}), ("Switch the {room} light off.", {"on": False}),
          ("Turn on the {room} light at {brightness} percent.", {"on": True})),
         lambda r, a: {"room": a["room"], "state": "on" if a["on"] else "off", "power": r.randint(0, 60)},
         "Done. The light in the {room} is {state} and uses {power} watts."),
    Tool(("set_temperature", "set_heating", "thermostat"), ("Set the heating of a room", "Set a room temperature", "Control the heating"),
         {"room": ROOM, "degrees": Param(("degrees", "temperature"), "number", "Degrees celsius", lambda r: r.choice([r.randint(15, 26), r.randint(15, 25) + 0.5]))},
         ("room", "degrees"),
         (("Set the {room} to {degrees} degrees.", {}), ("Heat the {room} to {degrees} degrees.", {}), ("I want {degrees} degrees in the {room}.", {})),
         lambda r, a: {"room": a["room"], "target": a["degrees"], "minutes": r.randint(2, 90)},
         "Done. The {room} will reach {target} degrees in {minutes} minutes."),
    Tool(("search_products", "product_search", "find_products"), ("Search for products", "Find products in shops", "Search products by words"),
         {"query": Param(("query", "keywords"), "string", "What to look for", lambda r: f"{r.choice(COLOURS)} {r.choice(NOUNS)}"),
          "max_price": Param(("max_price", "price_limit"), "number", "Highest price in euros", lambda r: decimal(r, 99)),
          "in_stock": flag(("in_stock", "available"), "Only products in stock")}, ("query",),
         (("Search for a {query}.", {}), ("Search for a {query} under {max_price} euros.", {}),
          ("Search for a {query} that is in stock.", {"in_stock": True}),
          ("Search for a {query} under {max_price} euros that is in stock.", {"in_stock": True})),
         lambda r, a: {"found": r.randint(1, 60), "best": f"{r.choice(WORDS).title()} {r.choice(NOUNS)}", "price": decimal(r, 99)},
         "I found {found} products. The best one is the {best} for {price} euros."),
    Tool(("place_order", "order_product", "buy"), ("Order a product", "Place an order", "Buy a product"),
         {"product": Param(("product", "item"), "string", "What to order", lambda r: f"{r.choice(COLOURS)} {r.choice(NOUNS)}"),
          "quantity": whole(("quantity", "count"), "How many", 1, 30), "express": flag(("express", "fast_delivery"), "Express delivery")},
         ("product", "quantity"),
         (("Order {quantity} of the {product}.", {}), ("Buy {quantity} of the {product}.", {}),
          ("Order {quantity} of the {product} with express delivery.", {"express": True}),
          ("Order {quantity} of the {product} without express delivery.", {"express": False})),
         lambda r, a: {"order_id": r.randint(1000, 9999), "total": decimal(r, 900), "delivery": date(r)},
         "Done. Order {order_id} costs {total} euros and arrives on {delivery}."),
    Tool(("book_table", "reserve_table", "restaurant_booking"), ("Book a table", "Reserve a table in a restaurant", "Book a restaurant table"),
         {"people": whole(("people", "guests", "party_size"), "Number of guests", 1, 12), "time": Param(("time", "hour"), "string", "Time of day", clock),
          "outdoor": flag(("outdoor", "outside"), "Whether to sit outside")}, ("people", "time"),
         (("Book a table for {people} people at {time}.", {}), ("Reserve a table for {people} at {time}.", {}),
          ("Book a table outside for {people} people at {time}.", {"outdoor": True}),
          ("Book a table inside for {people} people at {time}.", {"outdoor": False})),
         lambda r, a: {"table": r.randint(1, 40), "code": f"{r.choice('ABCDEFGH')}{r.randint(10, 99)}", "time": a["time"]},
         "Done. Table {table} is booked for {time} with the code {code}."),
    Tool(("play_music", "music_player", "start_music"), ("Play music", "Play songs of an artist", "Start the music player"),
         {"artist": Param(("artist", "band"), "string", "Who to play", band), "volume": whole(("volume", "loudness"), "Volume in percent", 1, 100),
          "shuffle": flag(("shuffle", "random_order"), "Random order")}, ("artist",),
         (("Play {artist}.", {}), ("Play songs of {artist}.", {}), ("Play {artist} at volume {volume}.", {}), ("Shuffle {artist}.", {"shuffle": True}),
          ("Play {artist} without shuffle.", {"shuffle": False})),
         lambda r, a: {"song": f"{r.choice(WORDS)} {r.choice(WORDS)}".title(), "seconds": r.randint(60, 400)},
         "Now playing {song}, which lasts {seconds} seconds."),
    Tool(("sum_numbers", "add_up", "sum_tool"), ("Add up numbers", "Sum a list of numbers", "Compute the sum of numbers"),
         {"numbers": Param(("numbers", "values"), "array", "The numbers", some(lambda r: decimal(r, 99), 2, 5), items="number")}, ("numbers",),
         (("Use the tool to add up {numbers}.", {}), ("Sum {numbers} with the tool.", {}), ("Let the tool add {numbers}.", {})),
         lambda r, a: {"sum": round(sum(a["numbers"]), 2)}, "The sum is {sum}."),
    Tool(("translate", "translate_text", "translator"), ("Translate text", "Translate a text into a language", "Translation service"),
         {"text": Param(("text", "sentence"), "string", "Text to translate", phrase), "language": choice(("language", "target_language"), "Target language", LANGUAGES)},
         ("text", "language"),
         (("Translate into {language}: {text}", {}), ("Say in {language}: {text}", {}), ("What is this in {language}: {text}", {})),
         lambda r, a: {"translation": " ".join(r.choice("la le der die el los un una il uno sol mer rot vert casa tisch".split()) for _ in range(r.randint(2, 5)))},
         "The translation is: {translation}"),
    Tool(("find_route", "get_directions", "route_planner"), ("Find a route", "Plan a trip between two cities", "Directions between cities"),
         {"start": Param(("start", "origin"), "string", "Where the trip starts", lambda r: r.choice(CITIES)),
          "end": Param(("end", "destination"), "string", "Where the trip ends", lambda r: r.choice(CITIES)),
          "mode": choice(("mode", "transport"), "Means of transport", ["car", "train", "bike", "bus"])}, ("start", "end"),
         (("How do I get from {start} to {end}?", {}), ("Find a route from {start} to {end} by {mode}.", {}), ("Plan a trip from {start} to {end} by {mode}.", {}),
          ("Route from {start} to {end}?", {})),
         lambda r, a: {"distance": decimal(r, 900), "hours": r.randint(1, 30)}, "The route is {distance} km long and takes {hours} hours."),
    Tool(("delete_notes", "remove_notes", "erase_notes"), ("Delete notes", "Remove notes by number", "Delete notes with these ids"),
         {"ids": Param(("ids", "note_ids"), "array", "Numbers of the notes", some(lambda r: r.randint(1, 99), 2, 4), items="integer")}, ("ids",),
         (("Delete the notes {ids}.", {}), ("Remove notes {ids}.", {}), ("Erase the notes {ids}.", {})),
         lambda r, a: {"deleted": len(a["ids"]), "left": r.randint(0, 90)}, "Done. {deleted} notes are deleted and {left} are left."),
    Tool(("create_event", "add_event", "calendar_event"), ("Create a calendar event", "Add an event to the calendar", "Schedule an event"),
         {"title": Param(("title", "name"), "string", "Title of the event", lambda r: r.choice(WORDS)), "date": Param(("date", "day"), "string", "Date of the event", date),
          "guests": Param(("guests", "invitees"), "array", "Who is invited", some(lambda r: r.choice(PEOPLE), 2, 3), items="string")}, ("title", "date"),
         (("Create an event called {title} on {date}.", {}), ("Add the event {title} on {date} with {guests}.", {}), ("Schedule {title} for {date}.", {}),
          ("Plan the event {title} on {date} and invite {guests}.", {})),
         lambda r, a: {"event_id": r.randint(100, 999), "date": a["date"]}, "Done. Event {event_id} is planned for {date}."),
]
