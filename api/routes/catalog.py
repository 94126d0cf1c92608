"""What specifications may name: optimizers, models, datasets."""

from fastapi import APIRouter

from api.pages import DatasetInfo, ModelInfo, OptimizerInfo, Page, dataset_info, model_info, optimizer_info
from optim import catalog
from worker import presets
from worker.data import catalog as data_catalog

router = APIRouter(tags=["catalog"])


@router.get("/optimizers")
def optimizers() -> Page[OptimizerInfo]:
    """Every optimizer, with its options: their meaning, bounds, defaults and JSON schema."""
    return Page(items=tuple(optimizer_info(entry) for entry in catalog.entries()))


@router.get("/models")
def models() -> Page[ModelInfo]:
    """Every model preset."""
    return Page(items=tuple(model_info(preset) for preset in presets.PRESETS))


@router.get("/datasets")
def datasets() -> Page[DatasetInfo]:
    """Every dataset."""
    return Page(items=tuple(dataset_info(entry) for entry in data_catalog.DATASETS))
