"""The producer against a scripted server: what is asked, and what becomes of the answer."""

from __future__ import annotations

import asyncio
import json

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from batchgate.decision import Rejected
from batchgate.errors import ConfigError, ProducerError
from batchgate.producers import VllmProducer
from batchgate.testing import Reply, ScriptedServer, completion, cut, hang
from tests.producer_campaign import GOOD, campaign, proposal, rejected

WHOLE = f'{{"candidates":[{GOOD},{GOOD.replace("0.75", "0.8")}]}}'
SAMPLES = {"form": "samples", "samples": 4, "batch": 2}


@pytest.fixture
def spans(monkeypatch):
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    return exporter


async def ask(script, *, previous=(), decision=7, options=None, **producer):
    """Ask once; return the answer and the server, which keeps what was asked."""
    made = campaign(producer={"batch": 2, **producer})
    async with ScriptedServer(script) as server:
        asking = VllmProducer(server.url, "scripted", made, environ={}, **(options or {}))
        try:
            answer = await asking.propose(decision=decision, results=(), previous=previous)
        finally:
            await asking.aclose()
    return answer, server


class TestWholeProposal:
    async def test_answer_is_a_proposal_in_the_campaigns_units(self):
        answer, _ = await ask([completion(WHOLE)])

        assert [point["gap"] for point in answer.proposal.points()] == [7.5e-8, 8e-8]

    async def test_answer_tells_how_it_came_about(self):
        answer, _ = await ask([completion(WHOLE, response_id="chatcmpl-9", model="m")])

        assert (answer.response_id, answer.model) == ("chatcmpl-9", "m")
        assert answer.finish_reasons == ("stop",)
        assert answer.usage == {"input_tokens": 10, "output_tokens": 5}
        assert answer.temperature == 0.7
        assert (answer.samples_valid, answer.samples_total) == (1, 1)
        assert answer.elapsed_s >= 0

    async def test_server_that_does_not_count_is_fine(self):
        choice = {"message": {"content": WHOLE}, "finish_reason": None}
        bare = Reply(json.dumps({"choices": [choice], "usage": None}).encode())

        answer, _ = await ask([bare])

        assert answer.usage == {}
        assert (answer.response_id, answer.finish_reasons) == ("", ("",))

    async def test_request_carries_schema_and_bounds_and_nothing_that_harms(self):
        _, server = await ask([completion(WHOLE)], answer_tokens=99)

        (body,) = server.asked
        wanted = body.pop("response_format")
        assert wanted["type"] == "json_schema"
        assert wanted["json_schema"]["strict"] is True
        assert wanted["json_schema"]["schema"]["properties"]["candidates"]["maxItems"] == 2
        assert set(body) == {"model", "messages", "temperature", "max_tokens", "n"}
        assert (body["model"], body["max_tokens"], body["n"]) == ("scripted", 99, 1)

    async def test_answer_in_other_words_is_rejected_with_its_text(self):
        with pytest.raises(Rejected) as caught:
            await ask([completion('{"candidates":[]}')])

        assert caught.value.check == "schema"
        assert caught.value.value == '{"candidates":[]}'

    async def test_seed_differs_between_requests(self):
        seeds = []
        for decision, previous in ((1, []), (1, [rejected("x", "y")]), (2, [])):
            _, server = await ask(
                [completion(WHOLE)], previous=previous, decision=decision, options={"seed": 5}
            )
            seeds.append(server.asked[0]["seed"])

        assert len(set(seeds)) == 3


class TestSamples:
    async def test_proposal_is_the_first_distinct_valid_samples(self):
        other = GOOD.replace("0.75", "0.9")
        third = GOOD.replace("0.75", "0.6")

        answer, server = await ask([completion("{", GOOD, GOOD, other, third)], **SAMPLES)

        assert [point["gap"] for point in answer.proposal.points()] == [7.5e-8, 9e-8]
        assert (answer.samples_valid, answer.samples_total) == (2, 4)
        assert server.asked[0]["n"] == 4

    async def test_too_few_are_rejected_with_the_faults_counted(self):
        with pytest.raises(Rejected) as caught:
            await ask([completion(GOOD, GOOD, GOOD, "{}")], **SAMPLES)

        assert caught.value.reasons[:2] == (
            "1 of 4 answers are valid and distinct, 2 are needed",
            "2 of 4: it repeats another answer",
        )
        assert caught.value.check == "distinct"
        assert caught.value.value.split("\n") == [GOOD, GOOD, GOOD, "{}"]

    async def test_stage_is_that_of_most_faults(self):
        with pytest.raises(Rejected) as caught:
            await ask([completion("", GOOD, "", GOOD, finish_reason="length")], **SAMPLES)

        assert caught.value.check == "truncation"

    async def test_proposal_that_its_own_model_refuses_is_rejected(self, monkeypatch):
        made = campaign(producer=SAMPLES)

        class Strict(made.proposal_model):  # type: ignore[name-defined]
            def model_post_init(self, context):
                raise ValueError("the gaps must differ by 20 nm")

        object.__setattr__(made, "proposal_model", Strict)
        other = GOOD.replace("0.75", "0.9")
        async with ScriptedServer([completion(GOOD, other)]) as server:
            asking = VllmProducer(server.url, "scripted", made, environ={})
            with pytest.raises(Rejected, match="20 nm") as caught:
                await asking.propose(decision=1, results=(), previous=())
            await asking.aclose()

        assert caught.value.check == "schema"


class TestRejections:
    @pytest.mark.parametrize(
        ("reply", "stage", "reason"),
        [
            (completion(None, refusal="I will not."), "refusal", "the model refused: I will not."),
            (completion("x", finish_reason="content_filter"), "refusal", "content_filter"),
            (completion('{"a', finish_reason="length"), "truncation", "cut before its end"),
            (completion("[" + " \n" * 50, finish_reason="length"), "truncation", "into blanks"),
            (completion(None), "schema", "empty"),
            (completion(" \n"), "schema", "empty"),
            (completion("no JSON"), "schema", "not JSON"),
        ],
    )
    async def test_answer_that_is_no_proposal_names_its_stage(self, reply, stage, reason):
        with pytest.raises(Rejected, match=reason) as caught:
            await ask([reply])

        assert caught.value.check == stage
        assert isinstance(caught.value.value, str)


class TestFailures:
    @pytest.mark.parametrize(
        ("reply", "kind", "told"),
        [
            (cut(), "connection", "see whether the server runs"),
            (Reply(b'{"error":"boom"}', status=500), "status", "HTTP 500.*boom"),
            (Reply(b"", status=404), "status", "HTTP 404"),
            (Reply(b"", status=302, headers={"location": "/x"}), "status", "HTTP 302"),
            (Reply(b"not JSON"), "protocol", "no chat completion"),
            (Reply(b'{"choices":[]}'), "protocol", "choices"),
            (Reply(b'{"object":"error","message":"x"}'), "protocol", "choices: Field required"),
            (completion("x", finish_reason="abort"), "protocol", "'abort'"),
        ],
    )
    async def test_server_that_does_not_answer_is_a_failure(self, reply, kind, told):
        with pytest.raises(ProducerError, match=told) as caught:
            await ask([reply])

        assert caught.value.kind == kind

    async def test_nobody_there_is_a_failure(self, tmp_path):
        asking = VllmProducer(f"unix:{tmp_path / 'none'}", "m", campaign(), environ={})

        with pytest.raises(ProducerError, match="no answer") as caught:
            await asking.propose(decision=1, results=(), previous=())
        await asking.aclose()

        assert caught.value.kind == "connection"


class TestAskingAgain:
    async def test_each_request_of_a_decision_is_hotter_and_different(self):
        made = campaign(producer={"batch": 2, "temperature": 0.7, "temperature_max": 1.0})
        said = rejected(proposal(made, 6e-8, 7e-8), "too small")
        bodies = []
        for count in range(4):
            answer, server = await ask(
                [completion(WHOLE)], previous=[said] * count, temperature_max=1.0
            )
            bodies.append(json.dumps(server.asked[0]))
            assert answer.temperature == [0.7, 0.95, 1.0, 1.0][count]

        assert len(set(bodies)) == 4

    async def test_first_temperature_above_the_largest_stays(self):
        answer, _ = await ask([completion(WHOLE)], temperature=1.8, temperature_max=1.0)

        assert answer.temperature == 1.8

    async def test_connection_is_used_again(self, tmp_path):
        made = campaign(producer={"batch": 2})
        async with ScriptedServer([completion(WHOLE)] * 3, socket=tmp_path / "s") as server:
            asking = VllmProducer(server.url, "scripted", made, environ={})
            for decision in range(3):
                await asking.propose(decision=decision, results=(), previous=())
            await asking.aclose()

        assert server.url.startswith("unix:")
        assert server.connections == 1
        assert len(server.asked) == 3


class TestTelemetry:
    async def test_span_follows_the_genai_conventions(self, spans):
        _, server = await ask([completion(WHOLE, response_id="chatcmpl-9")])

        (span,) = spans.get_finished_spans()
        host, port = server.url.removeprefix("http://").split(":")
        assert (span.name, span.kind) == ("chat scripted", SpanKind.CLIENT)
        assert span.status.status_code is StatusCode.UNSET
        assert dict(span.attributes) == {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "vllm",
            "gen_ai.output.type": "json",
            "gen_ai.request.model": "scripted",
            "gen_ai.request.temperature": 0.7,
            "gen_ai.request.max_tokens": 400,
            "gen_ai.response.id": "chatcmpl-9",
            "gen_ai.response.model": "scripted",
            "gen_ai.response.finish_reasons": ("stop",),
            "gen_ai.usage.input_tokens": 10,
            "gen_ai.usage.output_tokens": 5,
            "server.address": host,
            "server.port": int(port),
        }

    async def test_server_can_join_its_span_and_its_id(self, spans):
        answer, server = await ask([completion(WHOLE)])

        (span,) = spans.get_finished_spans()
        headers = server.requests[0].headers
        assert headers["traceparent"].split("-")[1] == format(span.context.trace_id, "032x")
        assert headers["traceparent"].split("-")[2] == format(span.context.span_id, "016x")
        assert headers["x-request-id"] == answer.request_id

    async def test_ids_of_requests_differ(self):
        (one, _), (other, _) = [await ask([completion(WHOLE)]) for _ in range(2)]

        assert one.request_id != other.request_id

    async def test_failure_marks_the_span(self, spans):
        with pytest.raises(ProducerError):
            await ask([Reply(b"", status=500)])

        (span,) = spans.get_finished_spans()
        assert span.status.status_code is StatusCode.ERROR
        assert span.attributes["error.type"] == "status"

    async def test_cancellation_marks_the_span(self, spans):
        made = campaign(producer={"batch": 2})
        async with ScriptedServer([hang()]) as server:
            asking = VllmProducer(server.url, "scripted", made, environ={})
            task = asyncio.create_task(asking.propose(decision=1, results=(), previous=()))
            while not server.requests:
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            await asking.aclose()

        (span,) = spans.get_finished_spans()
        assert span.status.status_code is StatusCode.ERROR
        assert span.attributes["error.type"] == "asyncio.exceptions.CancelledError"

    async def test_rejection_does_not_mark_the_span(self, spans):
        with pytest.raises(Rejected):
            await ask([completion("{}")])

        (span,) = spans.get_finished_spans()
        assert span.status.status_code is StatusCode.UNSET


class TestKey:
    async def test_key_comes_from_the_variable_and_is_never_shown(self, caplog):
        caplog.set_level("DEBUG")
        made = campaign(producer={"batch": 2})
        async with ScriptedServer([Reply(b"", status=401)]) as server:
            environ = {"MY_KEY": "s3cret"}
            asking = VllmProducer(server.url, "m", made, api_key_env="MY_KEY", environ=environ)
            with pytest.raises(ProducerError) as caught:
                await asking.propose(decision=1, results=(), previous=())
            await asking.aclose()

        assert server.requests[0].headers["authorization"] == "Bearer s3cret"
        assert "s3cret" not in f"{caught.value}{vars(asking)}{caplog.text}"

    def test_key_that_no_header_may_have_is_refused_unseen(self):
        with pytest.raises(ConfigError, match="API key") as caught:
            VllmProducer("http://h:1", "m", campaign(), environ={"BATCHGATE_API_KEY": "a\nb"})

        assert "a\nb" not in str(caught.value)


class TestMistakes:
    @pytest.mark.parametrize(
        ("endpoint", "told"),
        [
            ("localhost:8000", "must be http://host:port"),
            ("ftp://h", "must be http://host:port"),
            ("unix:relative", "must be unix:/path"),
            ("http://user:pw@h", "holds a user or a password"),
            ("http://h:port", "Invalid port"),
        ],
    )
    def test_endpoint_that_cannot_be_used_is_refused(self, endpoint, told):
        with pytest.raises(ConfigError, match=told):
            VllmProducer(endpoint, "m", campaign(), environ={})

    async def test_endpoint_may_end_in_its_version(self):
        made = campaign(producer={"batch": 2})
        async with ScriptedServer([completion(WHOLE)]) as server:
            asking = VllmProducer(server.url + "/v1/", "m", made, environ={})
            await asking.propose(decision=1, results=(), previous=())
            await asking.aclose()

        assert server.requests[0].path == "/v1/chat/completions"

    def test_samples_without_a_temperature_are_refused(self):
        made = campaign(producer={**SAMPLES, "temperature": 0})

        with pytest.raises(ConfigError, match="temperature is 0, so 4 samples"):
            VllmProducer("http://h:1", "m", made, environ={})

    def test_samples_with_a_rationale_are_refused(self):
        made = campaign(producer={**SAMPLES, "rationale_chars": 90})

        with pytest.raises(ConfigError, match=r"needs \['rationale'\] as well"):
            VllmProducer("http://h:1", "m", made, environ={})

    def test_prompt_that_cannot_fit_is_refused_before_the_first_request(self):
        made = campaign(producer={"prompt_tokens": 200}, prompt="word " * 900)

        with pytest.raises(ConfigError, match="prompt_tokens is 200"):
            VllmProducer("http://h:1", "m", made, environ={})

    def test_name_is_that_of_the_model(self):
        assert VllmProducer("http://h:1", "smol", campaign(), environ={}).name == "vllm:smol"
