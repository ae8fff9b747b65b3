"""What load tests ask: questions that share nothing but their length class, texts to be edited, and long reading.

The edits make an answer repeat most of its prompt, which is where prompt lookup can guess.
"""

from __future__ import annotations

import random
from collections.abc import Callable

PROMPTS = [
    "What is the capital of France, and what is it known for?",
    "Explain in simple words why the sky is blue during the day.",
    "Write a short story about a lighthouse keeper and a lost whale.",
    "List five practical ways to save electricity in a small office.",
    "How does a bicycle stay upright while it is moving forward?",
    "Describe the taste of a ripe mango to someone who never had one.",
    "What should a beginner know before planting tomatoes in spring?",
    "Summarise how a bill becomes a law in a parliamentary democracy.",
]

MORE_PROMPTS = [
    "Why do cats purr, and what does it tell their owners?",
    "Give three reasons to learn a musical instrument as an adult.",
    "How do bees find their way back to the hive every evening?",
    "Write a polite letter that asks a neighbour for a ladder.",
    "What makes bread rise, and why does it need to rest?",
    "Explain to a child how a river becomes wide on its way to the sea.",
    "Which tools does a carpenter reach for first, and why?",
    "Describe a quiet morning in a railway station before the first train.",
]

_PASSAGES = """\
The old mill stands at the bend of the river. Its wheel has not turned for forty years, but the miller's daughter
still opens the shutters every morning. She says the building would be sad if nobody looked out of it. In summer
children swim below the weir, and in winter the ice makes the whole house creak.

Our office closes at six on weekdays and at two on Saturdays. Visitors should ring the bell beside the green door and
wait for an answer. Parcels can be left with the porter, who signs for them and keeps them until the next working day.
The lift is out of order, so please use the stairs.

To clean the filter, switch the machine off and wait until it is cold. Turn the lid to the left and lift the basket
out. Rinse it under warm water without soap. Put the basket back, turn the lid to the right until it clicks, and let
the machine run once without coffee.

The committee met on the third of May and agreed on four points. The fence will be painted before the festival. The
band will play on the large stage. Tickets will cost the same as last year. The treasurer will report on the costs at
the next meeting, which takes place in the school.

Maria packed two coats, a map and a tin of biscuits. The train left at seven and was almost empty. At the border a man
with a violin sat down across from her and slept at once. When he woke up he asked whether they had passed the bridge,
and she told him that they had passed three.

The garden has three parts. Near the house grow herbs, because the cook needs them every day. Behind the wall are the
vegetables, in rows that run from north to south. The rest is a meadow with old apple trees, and nobody is allowed to
cut the grass before the end of June.

A good knife needs little care. Wash it by hand and dry it at once. Never put it into a drawer with other tools, and
never cut on glass or stone. Draw it over a steel before you use it, and have it ground once a year by somebody who
knows how.

The ship carried salt, wool and eleven passengers. On the second night the wind turned to the west and grew so strong
that the captain took in every sail. At dawn the storm was over. The wool was wet, the salt was lost, and the eleven
passengers were singing on deck.
"""
_EDIT = "Correct the one spelling mistake in this text and write the whole text again:\n\n"


def _edit_prompts() -> list[str]:
    """Two passages each, so that the answer is at least 90 tokens long before it ends."""
    passages = [" ".join(passage.split()) for passage in _PASSAGES.split("\n\n")]
    following = [*passages[1:], passages[0]]
    texts = [f"{first} {second}" for first, second in zip(passages, following, strict=True)]
    return [_EDIT + text.replace("the ", "teh ", 1) for text in texts]


EDIT_PROMPTS = _edit_prompts()

_WORDS = """
river stone window garden paper winter market silver morning letter bridge kitchen forest engine pocket summer doctor
island yellow ticket carpet village corner button planet mirror valley ladder basket signal harbour blanket
"""


def words_by_chance(count: int, seed: int) -> list[str]:
    """Return so many words that make no sense together."""
    return random.Random(seed).choices(_WORDS.split(), k=count)  # noqa: S311 - no secret: the same words each time


def shortened(words: list[str], tokens: int, count: Callable[[str], int]) -> str:
    """Return as many of the words as make `tokens` tokens at most, as `count` counts them."""
    low, high = 0, len(words)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if count(" ".join(words[:middle])) <= tokens else (low, middle - 1)
    return " ".join(words[:low])


def long_prompt(tokens: int, seed: int, count: Callable[[str], int]) -> str:
    """Return words by chance that make about `tokens` tokens (never more), as `count` counts them."""
    return shortened(words_by_chance(tokens, seed), tokens, count)
