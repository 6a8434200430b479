import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judges.rubrics.generate import Generate
from orchestrator.core.errors import InvalidCampaign
from orchestrator.core.ports import Reading
from orchestrator.core.query import Kind, MissingReason, Query, Role
from orchestrator.core.wire import (
    FIRST_ATTEMPT,
    Attempt,
    Chat,
    Finish,
    Reply,
    Text,
    Turn,
)

ITEM = {"question": "Capital of France?", "subject": "geography", "reference": "Paris"}
CHAT = Chat(
    turns=(
        Turn(role="system", content="Be brief."),
        Turn(role="user", content="Capital?"),
        Turn(role="assistant", content="Of what?"),
        Turn(role="user", content="France {{ reference }}"),
    )
)
WIDENED = Attempt(number=2, widened=True)


def puts(prompt, *fields, hidden=("reference",), **options):
    fields = options.pop("fields", fields or (ITEM,))
    return Generate(prompt, fields, hidden=hidden, max_output_tok=400, **options)


def question(unit=0, *, judge=1, replicate=0):
    return Query(
        kind=Kind.GENERATE, role=Role.SYSTEM, judge=judge, units=(unit,), replicate=replicate
    )


def prompt(rubric, unit=0):
    (part,) = rubric.render(question(unit), FIRST_ATTEMPT).parts
    return part.text if isinstance(part, Text) else part


def refusals(text, *fields, **options):
    with pytest.raises(InvalidCampaign) as refusal:
        puts(text, *fields, **options)
    return [(p.path, p.line, p.message) for p in refusal.value.problems]


# What the system is shown


def test_the_system_is_shown_the_item_and_nothing_else():
    """No fence, no form of an answer: a system does what the item says."""
    request = puts("{{ subject }}: {{ question }}\n\nAnswer:\n").render(question(), FIRST_ATTEMPT)
    assert request.parts == (Text(text="geography: Capital of France?\n\nAnswer:"),)
    assert (request.schema, request.max_output_tok) == ({}, 400)
    assert puts("{{ subject }}").render(question(), WIDENED).max_output_tok == 800


@given(st.text(st.sampled_from("{}%# reference\n<>|")))
def test_what_an_item_says_is_never_a_template(text):
    """Whatever it says comes out word for word, so no item can read another field."""
    assert prompt(puts("Q: {{ question }}!", ITEM | {"question": text})) == f"Q: {text}!"
    assert prompt(puts("{{ question }}", ITEM | {"question": text})) == text


def test_a_template_can_do_more_than_name_fields():
    """It is a template of the texts themselves, which may be blank."""
    text = "{% if subject %}[{{ subject | upper }}] {% endif %}{{ question }}"
    rubric = puts(text, ITEM, ITEM | {"subject": ""})
    assert [prompt(rubric, u) for u in range(2)] == [
        "[GEOGRAPHY] Capital of France?",
        "Capital of France?",
    ]


def test_without_a_prompt_the_only_field_is_it():
    """The key is not counted, nor what the system will answer."""
    fields = {"question": " {{ 7*7 }}\n", "reference": "49", "candidate": ""}
    assert prompt(puts(None, fields)) == " {{ 7*7 }}\n"
    ((path, _, message),) = refusals(None)
    assert (path, message) == (
        "prompt",
        'missing; names which of the fields "question", "subject" the system is shown',
    )
    ((_, _, message),) = refusals(None, {"reference": "49"})
    assert message.startswith("there is no field that the system can be shown")


@pytest.mark.parametrize("text", [None, "{{ question }}", "\n {{ question }}\n\n", "{{question}}"])
def test_a_conversation_is_put_as_it_is(text):
    """It is the whole prompt, and keeps its roles; a unit may have a plain text in its place."""
    rubric = puts(text, {"question": CHAT, "reference": ""}, {"question": "x", "reference": ""})
    assert prompt(rubric, 0) == CHAT
    assert prompt(rubric, 1) == "x"


def test_recorded_systems_need_no_fields():
    """There is nothing to write then."""
    assert prompt(puts(None, fields=())) == ""


# What is refused


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("Q\n{{ reference }}", 2, "would give the answer away"),
        ("{{ question }}{% if reference %}{% endif %}", 1, "would give the answer away"),
        ("{{ candidate }}", 1, '"candidate" is what the system answers'),
        (
            "\n\n{{ questions }}",
            3,
            '"questions" is no field of data.fields; did you mean "question"?',
        ),
        ("{{ criteria }}", 1, '"criteria" is no field'),
        ("{{ question }", 1, "unexpected"),
        ("{% for %}", 1, "Expected"),
        ("{{ question | shout }}", 1, "No filter named 'shout'"),
        ("Hello", None, "names none of the fields"),
        ("{{ question[99] }}", None, "fails on unit 1: "),
        ("{{ question | dictsort }}", None, "fails on unit 0: "),
        ("{{ ().__class__.__base__ }}{{ question }}", None, "unsafe"),
        ("Say: {{ turns }}", 1, '"turns" is a conversation, which can only be the whole prompt'),
        ("{{ turns | string }}", 1, '"turns" is a conversation'),
        ("{{ turns }}{{ question }}", 1, '"turns" is a conversation'),
    ],
)
def test_a_prompt_that_could_not_be_put_is_refused_where_it_stands(text, line, said):
    """Before anything is sent, with its line in the text."""
    long = ITEM | {"question": "x" * 100, "turns": ""}
    short = ITEM | {"turns": CHAT}
    ((path, found, message),) = refusals(text, long, short)
    assert (path, found) == ("prompt", line)
    assert said in message


def test_the_key_can_be_read_in_no_other_way():
    """It is not among what a template is given, whatever it is called there."""
    for text in ("{{ self.reference }}{{ question }}", "{% set x = reference %}{{ question }}"):
        with pytest.raises(InvalidCampaign):
            puts(text)
    text = "{% set reference = 1 %}{{ question }}{{ reference }}"
    ((_, _, message),) = refusals(text)
    assert "give the answer away" in message


def test_a_unit_that_lacks_a_named_field_is_told():
    fields = (ITEM, {"subject": "x", "reference": "y"})
    ((path, _, message),) = refusals("{{ question }}: {{ subject }}", *fields)
    assert path == "data.fields.question"
    assert "unit 1" in message
    assert prompt(puts("{{ subject }}", *fields), 1) == "x"


def test_a_field_that_no_template_can_name_is_told():
    ((path, _, _),) = refusals(None, {"the question": "x"})
    assert path == "data.fields.the question"


# What comes back


@pytest.mark.parametrize("text", ["Paris", " \n42\n ", '{"score": 1}', "\ud800"])
def test_any_text_is_an_answer(text):
    """Whether it is right is asked of others."""
    reply = Reply(text=text, finish=Finish.STOP, usage=None)
    assert puts("{{ question }}").read(question(), reply) == Reading(observations=())


@pytest.mark.parametrize(
    ("text", "finish", "flags", "reason", "detail"),
    [
        ("  \n", Finish.STOP, (), MissingReason.EMPTY, ""),
        ("", Finish.EMPTY, (), MissingReason.EMPTY, ""),
        ("Par", Finish.LENGTH, (), MissingReason.TRUNCATED, "max_output_tokens is 400"),
        ("No.", Finish.REFUSED, ("refused:policy",), MissingReason.REFUSED, "refused:policy"),
        ("", Finish.BLOCKED, (), MissingReason.BLOCKED, ""),
    ],
)
def test_what_is_cut_or_refused_is_no_answer(text, finish, flags, reason, detail):
    """C28: a failure of the system, and never a wrong answer."""
    reply = Reply(text=text, finish=finish, usage=None, flags=flags)
    read = puts("{{ question }}").read(question(), reply)
    assert read.reason is reason
    assert read.detail.endswith(detail)


# The cache


def test_a_fingerprint_is_of_the_words_alone():
    """The same prompt is the same question for another unit; all that is said makes another."""
    rubric = puts("{{ question }}", ITEM, ITEM | {"subject": "x"})
    first = rubric.fingerprint(question(0), FIRST_ATTEMPT)
    assert first == rubric.fingerprint(question(1, judge=9), FIRST_ATTEMPT)
    others = [
        puts("Q: {{ question }}").fingerprint(question(), FIRST_ATTEMPT),
        rubric.fingerprint(question(), WIDENED),
        rubric.fingerprint(question(replicate=1), FIRST_ATTEMPT),
        *(
            puts(None, {"question": Chat(turns=turns)}).fingerprint(question(), FIRST_ATTEMPT)
            for turns in (
                CHAT.turns,
                CHAT.turns[1:],
                (Turn(role="user", content=ITEM["question"]),),
            )
        ),
    ]
    assert len({first, *others}) == 1 + len(others)


def test_prompts_of_a_large_benchmark_are_proved_in_no_time():
    """Each unit is tried where a template could fail on it: 8,000 in less than a second."""
    fields = [ITEM | {"question": f"{u} " * 100} for u in range(8_000)]
    started = time.perf_counter()
    puts("{% if subject %}{{ subject }}{% endif %}{{ question }}", fields=fields)
    assert time.perf_counter() - started < 1
