"""What RADICAL-Pilot has to be told of the tests' Slurm."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESOURCE = "test.slurm"
MACHINE: dict[str, Any] = {
    "description": "two nodes of a real Slurm on this host",
    "default_schema": "interactive",
    "schemas": {
        "interactive": {
            "job_manager_endpoint": "fork://localhost/",
            "filesystem_endpoint": "file://localhost/",
        }
    },
    "default_remote_workdir": "$HOME",
    "resource_manager": "SLURM",
    "agent_config": "default",
    "agent_scheduler": "CONTINUOUS",
    "agent_spawner": "POPEN",
    "launch_methods": {"order": ["SRUN"], "SRUN": {}},
    "rp_version": "installed",
    "virtenv_mode": "local",
    "python_dist": "default",
    "cores_per_node": 2,
    "gpus_per_node": 1,
    "lfs_path_per_node": "/tmp",
    "lfs_size_per_node": 1024,
    "mem_per_node": 1000,
    "system_architecture": {"exclusive": True},
    "network_interface": "lo",
}


def home(folder: Path) -> dict[str, str]:
    """Make a home for RADICAL-Pilot in a folder, and return the variables that lead it there."""
    configs = folder / ".radical" / "pilot" / "configs"
    configs.mkdir(parents=True)
    (configs / "resource_test.json").write_text(json.dumps({"slurm": MACHINE}))
    return {
        "HOME": str(folder),
        "RADICAL_DEFAULT_IFACE": "lo",
        "RADICAL_UTILS_NTPHOST": "127.0.0.1",
    }


def inside(job: str) -> dict[str, str]:
    """Return the variables of a process in an allocation that `held` gave."""
    return {
        "SLURM_JOB_ID": job,
        "SLURM_JOB_NODELIST": "n[1-2]",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_CPUS_ON_NODE": "2",
    }
