# SPDX-License-Identifier: Apache-2.0
"""LangChain's standard tests of sandboxes, on the deepagents backend."""
import pytest
from langchain_tests.integration_tests import SandboxIntegrationTests

import carrel
from carrel.deepagents import CarrelBackend


class TestCarrel(SandboxIntegrationTests):
    @pytest.fixture(scope="class")
    def sandbox(self):
        with carrel.Local() as c:
            yield CarrelBackend("thread-1", client=c)
