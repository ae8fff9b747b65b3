"""Tiny tokenizers of every build, wrapped as transformers ones: byte-level, words, and sentencepiece-like."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerFast

if TYPE_CHECKING:
    from collections.abc import Callable

CORPUS = [
    "the quick brown fox jumps over the lazy dog",
    "What is the capital of France? Paris.",
    "  def f(x): return x",
]
SPECIAL = ["<unk>", "<s>", "</s>", "<|im_start|>", "<|im_end|>"]

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# Alternating roles, a macro, a namespace, `tools is not none`, tojson and loop controls: what real templates do.
STRICT = """{%- macro tag(name) -%}<|im_start|>{{ name | upper }}{%- endmacro -%}
{{- bos_token -}}
{%- set ns = namespace(system='') -%}
{%- if tools is not none -%}{{- tools | tojson -}}{%- endif -%}
{%- if messages[0].role == 'system' -%}
    {%- set ns.system = messages[0]['content'] -%}
    {%- set messages = messages[1:] -%}
{%- endif -%}
{%- for message in messages %}
    {%- if (message.role == 'user') != (loop.index0 % 2 == 0) -%}
        {{- raise_exception('roles must alternate') -}}
    {%- endif -%}
    {{ tag(message.role) }}
{{ ns.system if loop.first }} {{ message.content | trim }}{% generation %}<|im_end|>{% endgeneration %}
    {%- if loop.index > 20 %}{% break %}{% endif -%}
{% endfor %}
{% if add_generation_prompt %}{{ tag('assistant') }} {{ {'é<': [1, none]} | tojson }}{{ eos_token if false }}{% endif %}
"""
DATED = "{{ strftime_now('%d %b %Y') }} " + CHATML


def make_tokenizer(kind: str, template: Any = CHATML, **settings: Any) -> Any:
    """Make one of `TOKENIZERS` with a chat template (a string, or a dict of several)."""
    fast = PreTrainedTokenizerFast(
        tokenizer_object=TOKENIZERS[kind](),
        **{"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", **settings},
    )
    fast.chat_template = template
    return fast


def _byte_level() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=400, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def _words() -> Tokenizer:
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase(), normalizers.Strip()])
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    trainer = trainers.WordLevelTrainer(special_tokens=SPECIAL, show_progress=False)
    tokenizer.train_from_iterator(CORPUS, trainer)
    return tokenizer


def _metaspace() -> Tokenizer:
    """Make what the old Llama models have: `▁` for a space, one in front of every text, bytes for the unknown, BOS."""
    letters = sorted({letter for text in CORPUS for letter in text if letter != " "} | {"▁"})
    pieces = [*SPECIAL, *(f"<0x{byte:02X}>" for byte in range(256)), *letters, "▁t", "he", "▁the"]
    merges = [("▁", "t"), ("h", "e"), ("▁t", "he")]
    vocabulary = {piece: index for index, piece in enumerate(pieces)}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.add_special_tokens(SPECIAL)
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)]
    )
    return tokenizer


def _stripping() -> Tokenizer:
    """Make a byte-level one whose added tokens swallow the spaces around them."""
    tokenizer = _byte_level()
    tokenizer.add_special_tokens([AddedToken("<|pad|>", lstrip=True, rstrip=True)])
    tokenizer.add_tokens([AddedToken("fox", single_word=True), AddedToken("Paris", lstrip=True, normalized=False)])
    return tokenizer


TOKENIZERS: dict[str, Callable[[], Tokenizer]] = {
    "byte-level": _byte_level,
    "words": _words,
    "metaspace": _metaspace,
    "stripping": _stripping,
}
