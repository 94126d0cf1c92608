"""What specifications may name: optimizers, models, datasets."""

from fastapi import APIRouter

from api.records import DatasetInfo, ModelInfo, OptimizerInfo, Page, dataset_infos, model_info, optimizer_info
from api.routes.context import SpecificationsDependency
from optim import catalog
from worker.catalog import datasets as data_catalog
from worker.catalog import presets

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
def datasets(specifications: SpecificationsDependency) -> Page[DatasetInfo]:
    """Every dataset of the catalog, and own ones that are prepared here."""
    return Page(items=dataset_infos(data_catalog.DATASETS, specifications.prepared_texts()))
