"""The model: asked for proposals over HTTP, and served by a vLLM of our own or another's."""

from .server import Endpoint, ModelServer, VllmServer
from .vllm import VllmProducer

__all__ = ["Endpoint", "ModelServer", "VllmProducer", "VllmServer"]
