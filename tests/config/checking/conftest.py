"""Fixtures of the tests of the checks; its presence puts this folder on the path, for the modules they share."""

import pytest
import things
from static_check_helpers import without_path
from things import Model, built, load, registry

from modalities_pipeline.config.checking.faults import sorted_faults
from modalities_pipeline.config.checking.static_check import StaticCheck


@pytest.fixture
def check(tmp_path):
    """Function yaml text -> `StaticCheck` of it as a `Model`."""

    def check_text(text: str, is_run: bool = True) -> StaticCheck:
        data, document = load(tmp_path / "config.yaml", text)
        result = StaticCheck(data, registry(), document, is_run)
        built.clear()
        result.check_model(Model)
        assert not any(isinstance(item, things.Thing | things.Tool) for item in built), "something was built"
        return result

    return check_text


@pytest.fixture
def faults(check):
    """Function yaml text -> its faults, as "line:column: key: message"."""

    def faults_of(text: str, is_run: bool = True) -> list[str]:
        return [without_path(fault) for fault in sorted_faults(check(text, is_run).faults)]

    return faults_of
