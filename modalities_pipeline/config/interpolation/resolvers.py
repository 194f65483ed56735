"""The functions behind `${name:argument}`: what they are called, what they answer, which variables they read."""

import contextlib
import dataclasses
import json
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from modalities_pipeline.config.checking.suggestions import closest_name, suggestion
from modalities_pipeline.config.secrets import EnvironmentValues

RANK_VARIABLES: Mapping[str, int] = {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1}  # name -> value without a launcher

BROKEN_RESOLVER = "modalities_pipeline.broken"  # stands in for a text with a broken ${...}

_STAND_INS = {"experiments_root_path": Path("experiments"), "experiment_id": "check"}
_NO_DEFAULT = object()

# OmegaConf knows resolvers by one table for the whole process, so configs are resolved one after the other
_lock = threading.RLock()


@dataclasses.dataclass(frozen=True)
class ResolverContext:
    """What resolvers need to know of the run.

    Attributes:
        experiments_root_path, experiment_id: values of `modalities_env`.
        world_size: makes `cuda_env` answer as rank 0 of so many, whatever the environment says.
        last_checkpoint_info_file_path: the JSON file behind `warmstart_env:checkpoint_paths`.
        check_only: nothing is going to be run; what only a run knows gets a stand-in, or is unknown but no fault.
        additional_resolver_funs: name -> function of more resolvers; they may replace ours and OmegaConf's.
    """

    experiments_root_path: Path | None = None
    experiment_id: str | None = None
    world_size: int | None = None
    last_checkpoint_info_file_path: Path | None = None
    check_only: bool = False
    additional_resolver_funs: Mapping[str, Callable[..., Any]] = dataclasses.field(default_factory=dict)


class NotResolvableError(Exception):
    """A resolver has no value; `is_fault` is False if it is only not known yet."""

    def __init__(self, reason: str, is_fault: bool = True) -> None:
        super().__init__(reason)
        self.reason = reason
        self.is_fault = is_fault


class Resolvers:
    """The resolvers of one config, for one resolution; `environment` is told which variables are read."""

    def __init__(self, config_path: Path, context: ResolverContext, environment: EnvironmentValues) -> None:
        self._context = context
        self._environment = environment
        self._config_path = config_path
        self._env_reads: set[str] = set()
        self._own: dict[str, Callable[..., Any]] = {
            "cuda_env": self._cuda_env,
            "modalities_env": self._modalities_env,
            "node_env": self._node_env,
            "warmstart_env": self._warmstart_env,
        }

    def own(self, name: str) -> Callable[[str], Any] | None:
        """The function of a resolver of ours that answers with a single value and is not replaced by a given one."""
        if name == "oc.env":
            return self._oc_env
        is_ours = name in self._own and name != "warmstart_env" and name not in self._context.additional_resolver_funs
        return self._own[name] if is_ours else None

    @contextlib.contextmanager
    def registered(self) -> Iterator[None]:
        """Within, OmegaConf knows these resolvers; afterwards those it knew before."""
        from omegaconf import OmegaConf
        from omegaconf.basecontainer import BaseContainer

        functions = {**self._own, **self._context.additional_resolver_funs, "oc.env": self._oc_env}
        with _lock:
            # OmegaConf offers no public way to get back the function of a name
            before = dict(BaseContainer._resolvers)
            try:
                for name, function in functions.items():
                    OmegaConf.register_resolver(name, function, replace=True, annotation_validation="off")
                yield
            finally:
                BaseContainer._resolvers.clear()
                BaseContainer._resolvers.update(before)

    @contextlib.contextmanager
    def recorded(self) -> Iterator[set[str]]:
        """The set that names, at the end, the environment variables read within (but for the ranks)."""
        before, self._env_reads = self._env_reads, set()
        try:
            yield self._env_reads
        finally:
            before |= self._env_reads
            self._env_reads = before

    def _oc_env(self, name: str, default: Any = _NO_DEFAULT) -> Any:
        self._env_reads.add(name)
        if (given := self._context.additional_resolver_funs.get("oc.env")) is not None:
            return self._read(name, given(name) if default is _NO_DEFAULT else given(name, default))
        if name in os.environ:
            return self._read(name, os.environ[name])
        if default is _NO_DEFAULT:
            intended = closest_name(name, os.environ)
            hint = f"; did you mean '{intended}'?" if intended else ""
            raise NotResolvableError(f"the environment variable {name} is not set{hint}")
        return None if default is None else str(default)

    def _read(self, name: str, value: Any) -> Any:
        if name not in RANK_VARIABLES:
            self._environment.add(name, value)
        return value

    def _cuda_env(self, name: str) -> Any:
        if name not in RANK_VARIABLES:
            return self._oc_env(name)
        if self._context.world_size is not None:
            return {**RANK_VARIABLES, "WORLD_SIZE": self._context.world_size}[name]
        if not any(variable in os.environ for variable in RANK_VARIABLES):
            return RANK_VARIABLES[name]
        if name not in os.environ:
            raise NotResolvableError(f"the environment variable {name} is not set; start training with torchrun")
        try:
            return int(os.environ[name])
        except ValueError:
            raise NotResolvableError(
                f"the environment variable {name} is '{os.environ[name]}', not a whole number; torchrun sets it"
            ) from None

    def _modalities_env(self, name: str) -> Path | str:
        context = self._context
        root, experiment_id = context.experiments_root_path, context.experiment_id
        values = {
            "config_file_path": self._config_path,
            "config_folder_path": self._config_path.parent,
            **(_STAND_INS if context.check_only else {}),
            **({"experiments_root_path": Path(root)} if root is not None else {}),
            **({"experiment_id": experiment_id} if experiment_id is not None else {}),
        }
        if name in _STAND_INS and name not in values:
            raise NotResolvableError(f"modalities_env:{name} is known only in a training run; here it was not given")
        return _look_up("modalities_env", values, name)

    def _node_env(self, name: str) -> int:
        return _look_up("node_env", {"num_cpus": os.cpu_count()}, name)

    def _warmstart_env(self, name: str) -> Any:
        path = self._context.last_checkpoint_info_file_path
        _look_up("warmstart_env", {"checkpoint_paths": None}, name)
        if path is None:
            raise NotResolvableError(
                "warmstart_env:checkpoint_paths is known only on a warm start; give the checkpoint's info file "
                "(--last_checkpoint_info_file_path)",
                is_fault=not self._context.check_only,
            )
        return _read_checkpoint_info(Path(path))


def known_resolvers() -> list[str]:
    """The names that OmegaConf knows now."""
    from omegaconf.basecontainer import BaseContainer

    return sorted(BaseContainer._resolvers.keys() - {BROKEN_RESOLVER})


def _look_up(resolver: str, values: Mapping[str, Any], name: str) -> Any:
    if name not in values:
        raise NotResolvableError(f"unknown {resolver} variable '{name}'{suggestion(name, values)}")
    return values[name]


def _read_checkpoint_info(path: Path) -> Any:
    """The JSON object that is written beside checkpoints, as OmegaConf's mapping, so that `${...}` can lead into it."""
    from omegaconf import OmegaConf

    try:
        info = json.loads(path.read_text("utf-8"))
    except FileNotFoundError:
        raise NotResolvableError(f"the checkpoint's info file {path} does not exist") from None
    except (OSError, ValueError) as error:
        raise NotResolvableError(f"the checkpoint's info file {path} cannot be read: {error}") from None
    if not isinstance(info, dict):
        raise NotResolvableError(f"the checkpoint's info file {path} has to hold a JSON object")
    return OmegaConf.create(info)
