"""What Slurm prints, as numbers."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from batchgate.slurm import time_text
from batchgate.slurm.fields import at_of, count_of, fields_of, gpus_of, job_fields, seconds_of


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0:02", 2),
        ("4:59", 299),
        ("00:05:00", 300),
        ("12:00:00", 43200),
        ("1-00:00:00", 86400),
        ("2-03:04:05", 183845),
        ("1-12", 129600),
        ("1-12:30", 131400),
        ("00:00:07.250", 7),
        ("UNLIMITED", math.inf),
        ("INFINITE", math.inf),
    ],
)
def test_a_span_is_read_in_every_form_that_slurm_prints(text, seconds):
    assert seconds_of(text) == seconds


@pytest.mark.parametrize("text", ["", "NONE", "N/A", "INVALID", "Partition_Limit", "30", "-5:00"])
def test_what_is_no_span_is_unknown(text):
    assert seconds_of(text) is None


@given(st.integers(0, 10_000 * 86400))
def test_a_span_that_is_told_to_slurm_is_read_back(seconds):
    assert seconds_of(time_text(seconds)) == seconds


def test_an_instant_is_taken_as_utc():
    assert at_of("2026-11-30T18:32:03") == 1796063523


@pytest.mark.parametrize("text", ["", "Unknown", "None", "N/A", "(null)", "18:32:03"])
def test_what_is_no_instant_is_unknown(text):
    assert at_of(text) is None


@pytest.mark.parametrize("text", [None, "", "N/A", "5-5", "-1", "٣"])
def test_what_is_no_count_is_none(text):
    assert count_of(text) == 0


def test_a_job_with_blanks_in_its_name_keeps_its_fields():
    fields = fields_of("JobId=2 JobName=my long night UserId=root(0) Requeue=1 Restarts=0")

    assert fields["JobName"] == "my"
    assert (fields["UserId"], fields["Requeue"]) == ("root(0)", "1")


def test_the_first_of_two_fields_counts():
    assert (
        fields_of("EndTime=Unknown Comment=x EndTime=2099-01-01T00:00:00")["EndTime"] == "Unknown"
    )


def test_one_job_of_an_array_is_told_from_the_others():
    out = "JobId=24 ArrayJobId=2 JobState=PENDING\nJobId=2 ArrayJobId=2 JobState=RUNNING\n"

    assert job_fields(out, "2")["JobState"] == "RUNNING"
    assert job_fields(out, "4") == {}


@pytest.mark.parametrize(
    ("fields", "gpus"),
    [
        ({"TRES": "cpu=2,mem=4000M,node=2,billing=2,gres/gpu=2"}, 2),
        ({"AllocTRES": "cpu=8,node=2,gres/gpu=8,gres/gpu:a100=8", "TRES": "cpu=1"}, 8),
        ({"TRES": "cpu=2,node=2", "TresPerNode": "gres:gpu:4"}, 8),
        ({"TRES": "cpu=2,node=2", "TresPerNode": "gres/gpu:a100:4"}, 8),
        ({"TRES": "cpu=2,node=2", "TresPerNode": "gres/gpu=3"}, 6),
        ({"TRES": "cpu=2,node=2", "TresPerNode": "gres:gpu"}, 2),
        ({"TRES": "cpu=2,node=2"}, 0),
        ({}, 0),
    ],
)
def test_gpus_are_counted_with_and_without_their_accounting(fields, gpus):
    assert gpus_of(fields, 2) == gpus
