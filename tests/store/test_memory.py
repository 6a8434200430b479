import pytest

from orchestrator.store.memory import MemoryStore
from orchestrator.testing.stores import StoreContract


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def store(self):
        return MemoryStore()

    @pytest.fixture
    def reopened(self):
        return lambda store: MemoryStore(store.lines, store.blobs)
