"""What is sent in place of a model, and the way back."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from datetime import date
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field, WithJsonSchema, create_model, field_validator

from batchgate.campaign import Space, Variable
from batchgate.decision import Rejected
from batchgate.errors import ConfigError
from batchgate.producers.schema import MAX_CHARS, MAX_RAW_BYTES, portable

Unit = Annotated[float, Field(ge=0, le=1)]


def model(**fields: Any) -> type[BaseModel]:
    needed: dict[str, Any] = {name: (kind, ...) for name, kind in fields.items()}
    made: type[BaseModel] = create_model("Asked", **needed)
    return made


def sent(kind: Any) -> dict[str, Any]:
    schema: dict[str, Any] = portable(model(x=kind)).schema["properties"]["x"]
    return schema


def number(low: float, high: float) -> dict[str, Any]:
    return sent(Annotated[float, Field(ge=low, le=high)])


class TestNumbers:
    def test_range_that_six_decimals_resolve_is_sent_as_it_is(self):
        assert number(0.1, 25.5) == {"type": "number", "minimum": 0.1, "maximum": 25.5}

    def test_range_without_a_writable_number_is_sent_in_powers_of_ten(self):
        schema = number(5e-8, 1e-7)

        assert (schema["minimum"], schema["maximum"]) == (0.5, 1.0)
        assert "1e-7" in schema["description"]

    def test_huge_numbers_are_sent_in_powers_of_ten(self):
        schema = number(0, 3e12)

        assert (schema["minimum"], schema["maximum"]) == (0, 3)

    def test_range_over_decades_keeps_its_small_end_writable(self):
        asked = portable(model(x=Annotated[float, Field(ge=1e-6, le=1)]))

        assert asked.restore('{"x": 0.0001}').model_dump() == {"x": 1e-6}
        assert asked.restore('{"x": 100}').model_dump() == {"x": 1.0}

    def test_narrow_range_far_from_zero_is_sent_in_finer_units(self):
        schema = number(1, 1.000001)

        assert schema["maximum"] - schema["minimum"] >= 0.01

    def test_bounds_are_rounded_into_the_range(self):
        schema = number(1 / 3, 2 / 3)

        assert (schema["minimum"], schema["maximum"]) == (0.333334, 0.666666)

    def test_forbidden_bounds_become_allowed_ones_a_step_inside(self):
        schema = sent(Annotated[float, Field(gt=0, lt=1)])

        assert (schema["minimum"], schema["maximum"]) == (0.000001, 0.999999)

    def test_range_of_one_number_is_that_number(self):
        assert number(2.5, 2.5) == {"const": 2.5}

    def test_range_that_no_power_of_ten_makes_writable_is_refused(self):
        with pytest.raises(ConfigError, match=r"Asked\.x .*no number there can be written"):
            sent(Annotated[float, Field(gt=1, lt=1 + 1e-15)])

    def test_range_without_any_number_is_refused(self):
        with pytest.raises(ConfigError, match="no number there can be written"):
            sent(Annotated[float, Field(gt=1, lt=1)])

    @pytest.mark.parametrize("bounds", [{"ge": 0}, {"le": 1}, {}])
    def test_number_without_a_bound_is_refused(self, bounds):
        with pytest.raises(ConfigError, match=r"Asked\.x has no (lower|upper) bound"):
            sent(Annotated[float, Field(**bounds)])

    def test_integers_keep_their_bounds(self):
        assert sent(Annotated[int, Field(ge=-3, lt=9)]) == {
            "type": "integer",
            "minimum": -3,
            "maximum": 8,
        }

    def test_integer_beyond_64_bits_is_refused(self):
        with pytest.raises(ConfigError, match="64 bits"):
            sent(Annotated[int, Field(ge=0, le=2**63)])


class TestOtherTypes:
    def test_text_always_has_a_length(self):
        assert sent(str)["maxLength"] == MAX_CHARS
        assert sent(Annotated[str, Field(max_length=7)])["maxLength"] == 7

    def test_list_without_a_length_is_refused(self):
        with pytest.raises(ConfigError, match=r"Asked\.x has no largest length"):
            sent(list[Unit])

    def test_mapping_with_any_key_is_refused(self):
        with pytest.raises(ConfigError, match=r"Asked\.x takes any key"):
            sent(dict[str, Unit])

    def test_anything_is_refused(self):
        with pytest.raises(ConfigError, match=r"Asked\.x may be anything"):
            sent(Any)

    def test_model_within_itself_is_refused(self):
        class Node(BaseModel):
            inner: Node | None

        with pytest.raises(ConfigError, match="nests Node in itself"):
            sent(Node)

    def test_type_without_a_schema_is_refused(self):
        with pytest.raises(ConfigError, match="Asked has no JSON schema"):
            sent(Callable[[], int])

    def test_references_are_put_in_place(self):
        class Point(BaseModel):
            x: Unit

        schema = portable(model(points=Annotated[list[Point], Field(max_length=3)])).schema

        assert "$ref" not in json.dumps(schema)
        assert schema["properties"]["points"]["items"]["properties"]["x"]["maximum"] == 1

    @pytest.mark.parametrize(
        ("schema", "told"),
        [
            ({"$ref": "https://example.org/x"}, "not in the model's schema"),
            ({"type": "array", "prefixItems": [{"type": "null"}], "maxItems": 2}, "open end"),
            ({"allOf": [{"type": "null"}, {"minimum": 0}]}, "may be anything"),
        ],
    )
    def test_schema_that_cannot_be_sent_is_refused(self, schema, told):
        with pytest.raises(ConfigError, match=told):
            sent(Annotated[Any, WithJsonSchema(schema)])

    def test_several_types_become_a_choice(self):
        several = {"type": ["boolean", "null"]}

        assert sent(Annotated[Any, WithJsonSchema(several)]) == {
            "anyOf": [{"type": "boolean"}, {"type": "null"}]
        }

    def test_what_the_grammar_refuses_is_left_to_pydantic_with_a_word(self, caplog):
        class Odd(BaseModel):
            step: Annotated[float, Field(ge=0, le=1, multiple_of=0.25)]
            code: Annotated[str, Field(pattern="^[a-z]+$", max_length=9)]
            names: Annotated[set[Annotated[str, Field(max_length=3)]], Field(max_length=3)]

        with caplog.at_level(logging.DEBUG, "batchgate.producers.schema"):
            asked = portable(Odd)

        text = json.dumps(asked.schema)
        assert not any(word in text for word in ("multipleOf", "pattern", "uniqueItems"))
        assert {"multipleOf", "pattern", "uniqueItems"} <= set(
            caplog.text.replace("'", " ").split()
        )
        with pytest.raises(Rejected, match=r"step.*; code"):
            asked.restore('{"step": 0.3, "code": "A", "names": []}')

    def test_known_format_goes_without_a_length(self):
        assert sent(date) == {"type": "string", "format": "date"}

    def test_choice_of_models_becomes_any_of(self):
        class Cold(BaseModel):
            kind: Literal["cold"]

        class Warm(BaseModel):
            kind: Literal["warm"]
            heat: Unit

        schema = sent(Annotated[Cold | Warm, Field(discriminator="kind")])

        assert set(schema) == {"anyOf"}

    def test_field_without_need_or_bound_is_not_asked_for(self):
        class Loose(BaseModel):
            x: Unit
            note: str = ""
            weight: float = 1.0
            rank: Annotated[int, Field(ge=1, le=3)] = 1

        schema = portable(Loose).schema

        assert list(schema["properties"]) == ["x", "rank"]
        assert schema["required"] == ["x"]

    def test_proposal_without_a_rationale_is_not_asked_for_one(self):
        space = Space(variables={"x": Variable(domain=(0, 1))})

        without = portable(space.proposal_model(batch=2, rationale_chars=0)).schema
        with_one = portable(space.proposal_model(batch=2, rationale_chars=90)).schema

        assert list(without["properties"]) == ["candidates"]
        assert list(with_one["properties"]) == ["rationale", "candidates"]

    def test_same_model_gives_the_same_schema(self):
        space = Space(variables={"b": Variable(domain=(0, 1)), "a": Variable(values=(1, "x"))})

        first, second = (portable(space.candidate_model()) for _ in range(2))

        assert json.dumps(first.schema) == json.dumps(second.schema)
        assert list(first.schema["properties"]) == ["b", "a"]


class TestPowersOfTen:
    Tiny = Annotated[float, Field(ge=5e-8, le=1e-7)]

    def test_they_are_undone_wherever_they_stand(self):
        class Inner(BaseModel):
            gap: TestPowersOfTen.Tiny

        asked = portable(
            model(
                many=Annotated[list[Inner], Field(max_length=2)],
                pair=tuple[TestPowersOfTen.Tiny, Unit],
                maybe=TestPowersOfTen.Tiny | None,
            )
        )

        made = asked.restore('{"many": [{"gap": 0.6}], "pair": [0.5, 0.5], "maybe": 1}')

        assert made.model_dump() == {
            "many": [{"gap": 6e-8}],
            "pair": (5e-8, 0.5),
            "maybe": 1e-7,
        }

    def test_absent_number_stays_absent(self):
        asked = portable(model(x=TestPowersOfTen.Tiny | None))

        assert asked.restore('{"x": null}').model_dump() == {"x": None}

    def test_values_are_told_in_the_units_sent(self):
        asked = portable(model(x=TestPowersOfTen.Tiny))

        assert asked.scaled({"x": 6e-8}) == {"x": 0.6}

    @pytest.mark.parametrize(
        "other",
        [
            Unit,
            Annotated[int, Field(ge=0, le=3)],
            Literal[1, 2],
            Literal[7],
        ],
    )
    def test_choice_that_an_answer_cannot_tell_is_refused(self, other):
        with pytest.raises(ConfigError, match=r"Asked\.x is a choice"):
            sent(TestPowersOfTen.Tiny | other)

    def test_choice_within_a_choice_is_looked_into(self):
        tiny = {"type": "number", "minimum": 5e-8, "maximum": 1e-7}
        inner = {"anyOf": [{"const": 1}, {"type": "null"}]}

        with pytest.raises(ConfigError, match=r"Asked\.x is a choice"):
            sent(Annotated[Any, WithJsonSchema({"anyOf": [tiny, inner]})])

    @pytest.mark.parametrize("other", [Literal["auto"], Literal[None], Literal[True], bool])
    def test_choice_that_an_answer_can_tell_is_fine(self, other):
        asked = portable(model(x=TestPowersOfTen.Tiny | other))

        assert asked.restore('{"x": 0.7}').model_dump() == {"x": 7e-8}


class TestRestore:
    asked = portable(model(x=Unit, name=str))

    def test_valid_answer_is_the_model(self):
        assert self.asked.restore('{"x": 0.5, "name": "é"}').model_dump() == {"x": 0.5, "name": "é"}

    @pytest.mark.parametrize(
        ("text", "why"),
        [
            ("", "not JSON"),
            ('{"x": 0.5', "not JSON"),
            ('{"x": 0.5, "x": 0.6, "name": ""}', "twice"),
            ('{"x": NaN, "name": ""}', "NaN is no JSON number"),
            ('{"x": -Infinity, "name": ""}', "-Infinity is no JSON number"),
            ('{"x": 1e999, "name": ""}', "too large"),
            ('{"x": ' + "9" * 5000 + ', "name": ""}', "not JSON"),
            ("[" * 100_000, "not JSON"),
            ('{"x":,"name":"x"}', "not JSON"),
            ('{"x": 2, "name": ""}', "x: Input should be less than or equal to 1"),
            ('{"x": 0.5}', "name: Field required"),
            ('{"x": 0.5, "name": "\\ud800"}', "Invalid JSON"),
            ("3", "Input should be an object"),
        ],
    )
    def test_anything_else_is_rejected_with_its_text(self, text, why):
        with pytest.raises(Rejected, match=why) as caught:
            self.asked.restore(text)

        assert caught.value.check == "schema"
        assert caught.value.value == text[:MAX_RAW_BYTES]

    def test_kept_text_is_bounded_in_bytes(self):
        with pytest.raises(Rejected) as caught:
            self.asked.restore("é" * MAX_RAW_BYTES)

        assert len(caught.value.value.encode()) == MAX_RAW_BYTES

    def test_reasons_do_not_repeat_the_input(self):
        with pytest.raises(Rejected) as caught:
            self.asked.restore('{"x": "secret", "name": 3}')

        assert "secret" not in caught.value.reason
        assert len(caught.value.reasons) == 2

    def test_bug_in_the_model_is_not_a_rejection(self):
        class Buggy(BaseModel):
            x: Unit

            @field_validator("x")
            @classmethod
            def broken(cls, value: float) -> float:
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            portable(Buggy).restore('{"x": 0.5}')
