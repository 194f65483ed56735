"""The test of communication finds out what does not work, and says so."""

import pytest
import torch
import torch.distributed as dist

from modalities_pipeline.distributed.communication import check_communication
from modalities_pipeline.exceptions import RunningEnvError

CPU = torch.device("cpu")


@pytest.mark.usefixtures("process_group")
def test_one_process_can_talk_to_itself():
    check_communication(CPU)


@pytest.mark.usefixtures("process_group")
def test_a_wrong_sum_is_told(monkeypatch):
    monkeypatch.setattr(dist, "all_reduce", lambda tensor: tensor.add_(1))
    with pytest.raises(RunningEnvError, match=r"Rank 0 of 1 received wrong numbers \(gloo\): gathered \[0\], sum 1"):
        check_communication(CPU)


@pytest.mark.usefixtures("process_group")
def test_a_failing_operation_is_told_with_its_reason(monkeypatch):
    def fail(gathered, own):
        raise RuntimeError("connection closed by peer")

    monkeypatch.setattr(dist, "all_gather", fail)
    with pytest.raises(RunningEnvError, match=r"cannot talk to the others .*connection closed by peer"):
        check_communication(CPU)
