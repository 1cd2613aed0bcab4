"""The cluster for the tests here; see `cluster.py`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator

import pytest

from tests.slurm.cluster import Cluster, start


@pytest.fixture(scope="session")
def slurm_started() -> None:
    """Start Slurm. It is left running, so that the next tests have it at once; see `stop.sh`."""
    if os.geteuid() != 0 or not (shutil.which("slurmctld") or shutil.which("apt-get")):
        pytest.skip("a Slurm for the tests needs root, and slurmctld or apt-get")
    start()


@pytest.fixture
def cluster(slurm_started: None, tmp_path) -> Iterator[Cluster]:
    """Give a test the cluster, and end what it left there."""
    cluster = Cluster(tmp_path)
    yield cluster
    cluster.clear()
