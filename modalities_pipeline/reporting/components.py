"""The components of this folder, as rows of the table of components. Imports nothing but the row."""

from modalities_pipeline.config.entity import ComponentEntity
from modalities_pipeline.config.interfaces import MESSAGE_SUBSCRIBER

_FOLDER = "modalities_pipeline.reporting"


def _subscriber(component_key: str, variant_key: str, builder: str, config: str, description: str) -> ComponentEntity:
    return ComponentEntity(
        component_key,
        variant_key,
        f"{_FOLDER}.{builder}",
        f"{_FOLDER}.configs:{config}",
        MESSAGE_SUBSCRIBER,
        description,
    )


COMPONENTS: list[ComponentEntity] = [
    _subscriber(
        "progress_subscriber",
        "dummy",
        "progress:DummyProgressSubscriber",
        "DummyProgressSubscriberConfig",
        "shows no progress",
    ),
    _subscriber(
        "progress_subscriber",
        "rich",
        "progress:get_rich_progress_subscriber",
        "RichProgressSubscriberConfig",
        "bars on the terminal for training and each evaluation",
    ),
    _subscriber(
        "results_subscriber",
        "dummy",
        "results:DummyResultSubscriber",
        "DummyResultSubscriberConfig",
        "shows no results",
    ),
    _subscriber(
        "results_subscriber",
        "rich",
        "results:get_rich_result_subscriber",
        "RichResultSubscriberConfig",
        "a panel on the terminal for each result",
    ),
    _subscriber(
        "results_subscriber",
        "to_disc",
        "to_disc:ToDiscResultSubscriber",
        "ToDiscResultSubscriberConfig",
        "a file with a line of JSON for each result",
    ),
    _subscriber(
        "results_subscriber",
        "wandb",
        "wandb_results:get_wandb_result_subscriber",
        "WandBResultSubscriberConfig",
        "Weights & Biases, online or into a folder",
    ),
]
