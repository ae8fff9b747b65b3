"""Conversations that stand for what a model is asked: one set to choose roundings by, another to judge them by.

A model that was tuned on the text it is judged by would look better than it is, so the two sets share nothing.
"""

from __future__ import annotations

from typing import Any

Conversation = list[tuple[str, str]]

CALIBRATION: list[Conversation] = [
    [
        (
            "Why does bread rise?",
            (
                "Yeast eats the sugar in the dough and gives off gas. The gluten in the flour forms a stretchy net "
                "that traps the gas in small bubbles, so the dough grows. In the oven the bubbles swell once more "
                "before the crust sets, and that is why a good loaf is light inside and firm outside."
            ),
        ),
        (
            "How long should I let it rest?",
            (
                "It depends on the room. At 24 degrees, one to two hours are enough for the first rise; in a cool "
                "kitchen it may take three. The dough is ready when it has doubled and a finger leaves a dent that "
                "fills slowly."
            ),
        ),
    ],
    [
        (
            "Write a Python function that counts the words in a file.",
            (
                "```python\nfrom pathlib import Path\n\n\ndef count_words(path: Path) -> int:\n    total = 0\n    "
                'with path.open(encoding="utf-8") as lines:\n        for line in lines:\n            total += '
                "len(line.split())\n    return total\n```\n\nIt reads the file line by line, so it also works for "
                "files that are larger than the memory."
            ),
        ),
        (
            "What happens if the file does not exist?",
            (
                "`path.open` raises `FileNotFoundError`. You can let it pass to the caller, or catch it and return "
                "0 if a missing file means the same as an empty one in your program."
            ),
        ),
    ],
    [
        (
            (
                "Summarize: The town council met on Thursday. After two hours of debate it voted to close Mill "
                "Street to cars on Saturdays, starting in May. Shop owners fear fewer customers, while parents "
                "welcome the change. The council will look at the results in October."
            ),
            (
                "The council decided to close Mill Street to cars on Saturdays from May on. Shop owners are worried "
                "and parents are pleased; in October the council will review how it went."
            ),
        ),
    ],
    [
        (
            "Translate into German: Where is the nearest railway station?",
            "Wo ist der nächste Bahnhof?",
        ),
        (
            "And into French and Spanish?",
            "French: Où est la gare la plus proche ?\nSpanish: ¿Dónde está la estación?",
        ),
    ],
    [
        (
            "I have 3 boxes with 12 eggs each and I break 5 eggs. How many are left?",
            "Three boxes of twelve eggs are 3 * 12 = 36 eggs. If you break 5, then 36 - 5 = 31 eggs are left.",
        ),
        (
            "What is 15% of 240?",
            ("To find 15% of 240, multiply 240 by 0.15. Ten percent is 24 and five percent is 12, so the sum is 36."),
        ),
    ],
    [
        (
            "Dear support, my printer shows error 0x61 and does not print. What can I do?",
            (
                "I'm sorry to hear that. Please try the following steps:\n\n1. Switch the printer off and unplug it "
                "for a minute.\n2. Open the cover and look for paper that is stuck.\n3. Take the cartridges out and "
                "put them back until they click.\n4. Plug the printer in again and print a test page.\n\nIf the "
                "error comes back, send us the serial number from the label on the back, and we will arrange a "
                "repair."
            ),
        ),
    ],
    [
        (
            "Tell me something about the history of the bicycle.",
            (
                "In 1817 a German forester, Karl Drais, built a running machine with two wheels in a line. Pedals "
                "on the front wheel came in the 1860s in Paris. The high wheels of the 1870s were fast but "
                "dangerous, and in 1885 John Kemp Starley made the safety bicycle, with two equal wheels and a "
                "chain to the rear one. Air-filled tires followed three years later, and the shape has hardly "
                "changed since."
            ),
        ),
        (
            "Which invention mattered most?",
            (
                "Many people would name the chain drive, because it separated the speed of the legs from the size "
                "of the wheel. Others say the air-filled tire, which made rough roads bearable."
            ),
        ),
    ],
    [
        (
            "Give me a list of three healthy breakfasts in JSON.",
            (
                '{"breakfasts": [{"name": "oatmeal with berries", "minutes": 10}, {"name": "yogurt with nuts and '
                'honey", "minutes": 3}, {"name": "eggs on rye bread", "minutes": 8}]}'
            ),
        ),
    ],
    [
        (
            "Explain what a neural network is to a child.",
            (
                "Imagine a long line of friends who pass notes. The first friends look at a picture and each writes "
                "down one small thing: a dark spot, a round edge, a bit of fur. The next friends read those notes "
                "and guess something bigger: an ear, a tail. The last friend reads all of that and says: it is a "
                "cat! If the guess is wrong, everybody learns to trust some notes more and others less, and next "
                "time they do better."
            ),
        ),
    ],
    [
        (
            "Write a short poem about the sea in winter.",
            (
                "The harbor sleeps beneath the snow,\nthe boats lie still, the lamps burn low;\nbeyond the wall the "
                "grey waves roar\nand write their names along the shore."
            ),
        ),
        (
            "Make it more cheerful.",
            (
                "The harbor shines, the snow is bright,\nthe children laugh, the sails are white;\nand every wave "
                "that comes ashore\nbrings one more song than came before."
            ),
        ),
    ],
    [
        (
            "What is the difference between a virus and a bacterium?",
            (
                "A bacterium is a living cell that feeds, grows and divides by itself; many are harmless or even "
                "useful. A virus is much smaller, has no metabolism and can only multiply inside the cells of a "
                "host. Antibiotics work against bacteria but not against viruses, which is why a cold cannot be "
                "treated with them."
            ),
        ),
    ],
    [
        (
            "Rewrite this politely: Send me the report now, you are late again.",
            (
                "Could you please send me the report when you have a moment? It was due yesterday, and I would like "
                "to include it in the meeting this afternoon. Thank you very much for your help."
            ),
        ),
        (
            "Shorter, please.",
            "Could you please send me the report today? I need it for this afternoon's meeting. Thank you!",
        ),
    ],
    [
        (
            "How do I find the largest value in a SQL table called sales?",
            (
                "Use the aggregate function MAX:\n\nSELECT MAX(amount) FROM sales;\n\nIf you also want to know "
                "which customer it was, sort the rows and take the first one:\n\nSELECT customer, amount FROM sales "
                "ORDER BY amount DESC LIMIT 1;"
            ),
        ),
    ],
]

EVALUATION: list[Conversation] = [
    [
        (
            "Can you explain how a rainbow is made?",
            (
                "Sunlight looks white, but it is a mixture of all colors. When a ray enters a drop of rain it is "
                "bent, and each color is bent by a slightly different angle. The ray is reflected at the back of "
                "the drop and bent again on its way out, so the colors leave in different directions. You see red "
                "from the drops that are higher in the sky and blue from the lower ones, and together they form an "
                "arc."
            ),
        ),
        (
            "Why is it always a circle?",
            (
                "Because only the angle between the sun, the drop and your eye matters. All drops that send you the "
                "same color lie on a cone around the line from the sun through your head, and a cone seen from its "
                "tip looks like a circle. The ground hides the lower half of it."
            ),
        ),
    ],
    [
        (
            "Write a function in JavaScript that reverses a string.",
            (
                "Here is a simple way:\n\nfunction reverse(text) {\n  return [...text].reverse().join('');\n}\n\n"
                "The spread operator splits the text into characters, `reverse` turns the list around, and `join` "
                "puts it together."
            ),
        ),
    ],
    [
        (
            "I am planning a weekend in Lisbon. What should I see?",
            (
                "On Saturday morning take the old tram through Alfama and walk up to the castle for the view. In "
                "the afternoon visit the tower and the monastery in Belém, and try the custard tarts in the bakery "
                "next to it. On Sunday you could go to Sintra by train; the palace on the hill is worth the climb. "
                "In the evening, listen to fado in one of the small restaurants."
            ),
        ),
        (
            "How much money will I need?",
            (
                "Without the hotel, about 80 to 100 euros a day are comfortable: 15 for transport, 25 for tickets "
                "and the rest for food. Many museums are free on the first Sunday of the month."
            ),
        ),
    ],
    [
        (
            "A train leaves at 9:40 and arrives at 12:15. How long does the journey take?",
            (
                "From 9:40 to 12:00 it is 2 hours and 20 minutes, and from 12:00 to 12:15 another 15 minutes. The "
                "journey takes 2 hours and 35 minutes."
            ),
        ),
    ],
    [
        (
            "Write an email to my landlord about a broken heater.",
            (
                "Subject: Heating in apartment 12\n\nDear Ms. Brown,\n\nsince Monday the heater in our living room "
                "has not been working, and the temperature in the evening is below 16 degrees. Could you please "
                "send someone to repair it this week? I am at home every day after 4 pm.\n\nThank you and kind "
                "regards,\nDaniel"
            ),
        ),
        (
            "Which word could replace 'repair'?",
            "You could write 'fix' or 'have a look at' instead of 'repair'.",
        ),
    ],
]


def messages_of(conversation: Conversation) -> list[dict[str, str]]:
    """Write a conversation as chat templates want it."""
    roles = ("user", "assistant")
    return [{"role": role, "content": text} for turn in conversation for role, text in zip(roles, turn, strict=True)]


def render(tokenizer: Any, conversation: Conversation) -> list[int]:
    """Return the tokens of a conversation, through the tokenizer's chat template where there is one."""
    messages = messages_of(conversation)
    if getattr(tokenizer, "chat_template", None):
        text = tokenizer.apply_chat_template(messages, tokenize=False)
        ids = tokenizer(text, add_special_tokens=False, verbose=False).input_ids
    else:
        ids = tokenizer("\n\n".join(message["content"] for message in messages), verbose=False).input_ids
    return [int(token) for token in ids]
