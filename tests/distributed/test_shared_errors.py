"""What all ranks run into alike is reported by one of them, and no rank is left waiting."""

import pytest
import torch.distributed as dist

from modalities_pipeline.distributed.shared_errors import ReportedElsewhereError, errors_raised_once
from modalities_pipeline.exceptions import ConfigError


def test_without_a_process_group_errors_pass_through():
    with errors_raised_once():
        done = True
    assert done
    with pytest.raises(ConfigError, match="wrong") as caught, errors_raised_once():
        raise ConfigError("wrong")
    assert type(caught.value) is ConfigError
    with pytest.raises(KeyError), errors_raised_once():
        raise KeyError("not about a config")


@pytest.mark.parametrize(
    ("messages", "rank", "is_quiet"),
    [
        (["wrong", "wrong"], 0, False),
        (["wrong", "wrong"], 1, True),
        (["wrong", "other"], 1, False),
        ([None, "wrong"], 1, False),
        ([None, "wrong"], 0, True),
        ([None, None], 0, None),
    ],
)
def test_the_first_rank_with_an_error_reports_it(monkeypatch, messages, rank, is_quiet):
    def all_gather(gathered, own):
        assert own == messages[rank]
        gathered[:] = messages

    monkeypatch.setattr(dist, "is_initialized", lambda: True)
    monkeypatch.setattr(dist, "get_world_size", lambda: len(messages))
    monkeypatch.setattr(dist, "get_rank", lambda: rank)
    monkeypatch.setattr(dist, "all_gather_object", all_gather)

    def run() -> type[ConfigError] | None:
        try:
            with errors_raised_once():
                if messages[rank] is not None:
                    raise ConfigError(messages[rank])
        except ConfigError as error:
            return type(error)
        return None

    assert run() is {None: None, True: ReportedElsewhereError, False: ConfigError}[is_quiet]
