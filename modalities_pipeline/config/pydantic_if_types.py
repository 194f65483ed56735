"""Types of fields whose values are components; classes are imported only when an object has to be looked at."""

from typing import Annotated, Any

from pydantic import GetCoreSchemaHandler
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from modalities_pipeline.config import interfaces
from modalities_pipeline.config.checking.wording import what_it_is, with_article
from modalities_pipeline.config.registry import import_target
from modalities_pipeline.config.unbuilt import Unbuilt

_PLAIN_TYPES = (str, int, float, dict, type(None), tuple, set)


class PydanticThirdPartyTypeIF:
    """Marks a field that takes an object of a class, given as such or as "module:Class".

    With `or_list`, a list of such objects (the parts of a model, one optimizer for each, ...) is taken, too.
    """

    def __init__(self, third_party_type: type | str, or_list: bool = False) -> None:
        self._type = third_party_type
        self._or_list = or_list

    @property
    def interface(self) -> str:
        """The class as "module:Class"."""
        if isinstance(self._type, str):
            return self._type
        return f"{self._type.__module__}:{self._type.__qualname__}"

    @property
    def name(self) -> str:
        """The class' name, as in messages."""
        name = self.interface.rpartition(":")[2]
        return f"{name} or list of them" if self._or_list else name

    @property
    def _wanted(self) -> str:
        return f"{what_it_is(self.interface)}{' or a list of them' if self._or_list else ''}"

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """A validator that leaves the object as it is."""
        return core_schema.no_info_plain_validator_function(self._validate)

    def _validate(self, value: Any) -> Any:
        if self._or_list and isinstance(value, list):
            return [self._validate_one(item) for item in value]
        return self._validate_one(value)

    def _validate_one(self, value: Any) -> Any:
        if isinstance(value, Unbuilt):
            if self._can_become(value):
                return value
            raise PydanticCustomError(
                "wrong_component",
                "has to be {wanted}, but {component} is {given}",
                {"wanted": self._wanted, "component": value.name, "given": what_it_is(value.interface)},
            )
        if not isinstance(value, (*_PLAIN_TYPES, list)):
            if isinstance(value, import_target(self._type)):
                return value
            given = with_article(type(value).__name__)
            raise PydanticCustomError(
                "wrong_object", "has to be {wanted}, not {given}", {"wanted": self._wanted, "given": given}
            )
        raise PydanticCustomError(
            "no_component", "has to be a component ({wanted}), or a reference to one", {"wanted": self.name}
        )

    def _can_become(self, component: Unbuilt) -> bool:
        """Whether a component may turn out to be an object of the class."""
        given = component.interface
        if isinstance(self._type, str) or given is None or given == interfaces.NUMBER:
            return component.can_be(self.interface)
        given_type = import_target(given)  # a class that somebody imported anyway can be compared as such
        return issubclass(given_type, self._type) or issubclass(self._type, given_type)


PydanticPytorchModuleType = Annotated[Any, PydanticThirdPartyTypeIF(interfaces.MODULE)]
PydanticPytorchModuleOrListType = Annotated[Any, PydanticThirdPartyTypeIF(interfaces.MODULE, or_list=True)]
PydanticFSDP1ModuleType = Annotated[Any, PydanticThirdPartyTypeIF(interfaces.FSDP1_MODULE)]
PydanticFSDP2ModuleType = Annotated[Any, PydanticThirdPartyTypeIF(interfaces.FSDP2_MODULE)]
PydanticOptimizerIFType = Annotated[Any, PydanticThirdPartyTypeIF(interfaces.OPTIMIZER)]
PydanticLRSchedulerIFType = Annotated[Any, PydanticThirdPartyTypeIF(interfaces.LR_SCHEDULER)]
PydanticDatasetIFType = Annotated[Any, PydanticThirdPartyTypeIF(interfaces.DATASET)]
PydanticSamplerIFType = Annotated[Any, PydanticThirdPartyTypeIF(interfaces.SAMPLER)]
PydanticPytorchDeviceType = Annotated[Any, PydanticThirdPartyTypeIF(interfaces.DEVICE)]
PydanticDeviceMeshIFType = Annotated[Any, PydanticThirdPartyTypeIF(interfaces.DEVICE_MESH)]
PydanticRemovableHandleType = Annotated[Any, PydanticThirdPartyTypeIF(interfaces.REMOVABLE_HANDLE)]
PydanticPipelineStageType = Annotated[Any, PydanticThirdPartyTypeIF(interfaces.PIPELINE_STAGE)]
PydanticLossIFType = Annotated[Any, PydanticThirdPartyTypeIF(interfaces.LOSS)]
PydanticModelInitializationIFType = Annotated[Any, PydanticThirdPartyTypeIF(interfaces.MODEL_INITIALIZATION)]
PydanticGradientClipperIFType = Annotated[Any, PydanticThirdPartyTypeIF(interfaces.GRADIENT_CLIPPER)]
PydanticTokenizerIFType = Annotated[Any, PydanticThirdPartyTypeIF(interfaces.TOKENIZER)]
PydanticCollateFnIFType = Annotated[Any, PydanticThirdPartyTypeIF(interfaces.COLLATE_FN)]
PydanticLLMDataLoaderIFType = Annotated[Any, PydanticThirdPartyTypeIF(interfaces.DATA_LOADER)]
PydanticDatasetBatchGeneratorIFType = Annotated[Any, PydanticThirdPartyTypeIF(interfaces.DATASET_BATCH_GENERATOR)]
PydanticAppStateType = Annotated[Any, PydanticThirdPartyTypeIF(interfaces.APP_STATE)]
PydanticCheckpointSavingIFType = Annotated[Any, PydanticThirdPartyTypeIF(interfaces.CHECKPOINT_SAVING)]
PydanticCheckpointSavingExecutionIFType = Annotated[
    Any, PydanticThirdPartyTypeIF(interfaces.CHECKPOINT_SAVING_EXECUTION)
]
PydanticCheckpointSavingStrategyIFType = Annotated[Any, PydanticThirdPartyTypeIF(interfaces.CHECKPOINT_SAVING_STRATEGY)]
PydanticDistributedCheckpointLoadingIFType = Annotated[
    Any, PydanticThirdPartyTypeIF(interfaces.DISTRIBUTED_CHECKPOINT_LOADING)
]
PydanticFSDP1CheckpointLoadingIFType = Annotated[Any, PydanticThirdPartyTypeIF(interfaces.FSDP1_CHECKPOINT_LOADING)]
PydanticMessageSubscriberIFType = Annotated[Any, PydanticThirdPartyTypeIF(interfaces.MESSAGE_SUBSCRIBER)]
PydanticTextInferenceComponentType = Annotated[Any, PydanticThirdPartyTypeIF(interfaces.TEXT_INFERENCE_COMPONENT)]
PydanticMFUCalculatorABCType = Annotated[Any, PydanticThirdPartyTypeIF(interfaces.MFU_CALCULATOR)]
PydanticStagesGeneratorType = Annotated[Any, PydanticThirdPartyTypeIF(interfaces.STAGES_GENERATOR)]
PydanticPipelineType = Annotated[Any, PydanticThirdPartyTypeIF(interfaces.PIPELINE)]
PydanticSteppableComponentIFType = Annotated[Any, PydanticThirdPartyTypeIF(interfaces.STEPPABLE_COMPONENT)]
PydanticSteppableProfilerIFType = Annotated[Any, PydanticThirdPartyTypeIF(interfaces.STEPPABLE_PROFILER)]
PydanticDebuggingType = Annotated[Any, PydanticThirdPartyTypeIF(interfaces.DEBUGGING)]
