"""The wire models: what the service takes and answers, shared by server, client and command line.

Importable without SQLAlchemy, DeepHyper, FastAPI or torch.
"""

from autotune.schemas.predictions import (
    DryRun,
    Prediction,
    Refusal,
    SpaceReport,
)
from autotune.schemas.problems import (
    FieldProblem,
    Problem,
)
from autotune.schemas.questions import (
    BatchBounds,
    Budget,
    BudgetExtension,
    CampaignCreate,
    Dimension,
    MachineChoice,
    MachineShape,
    ModelChoice,
    ModelShape,
    PredictionQuery,
    ProtocolSpec,
    Range,
    SpaceQuery,
    SpaceSpec,
    StrategyShape,
)
from autotune.schemas.records import (
    Accumulation,
    Campaign,
    CampaignPage,
    CampaignState,
    Event,
    Ranked,
    Recommendation,
    TrainingCost,
    Trial,
    TrialMetrics,
    TrialPage,
    TrialState,
)
from autotune.schemas.wire import (
    EvaluatorName,
    Objective,
    Positive,
    Scalar,
    Wire,
)

__all__ = [
    "Accumulation",
    "BatchBounds",
    "Budget",
    "BudgetExtension",
    "Campaign",
    "CampaignCreate",
    "CampaignPage",
    "CampaignState",
    "Dimension",
    "DryRun",
    "EvaluatorName",
    "Event",
    "FieldProblem",
    "MachineChoice",
    "MachineShape",
    "ModelChoice",
    "ModelShape",
    "Objective",
    "Positive",
    "Prediction",
    "PredictionQuery",
    "Problem",
    "ProtocolSpec",
    "Range",
    "Ranked",
    "Recommendation",
    "Refusal",
    "Scalar",
    "SpaceQuery",
    "SpaceReport",
    "SpaceSpec",
    "StrategyShape",
    "TrainingCost",
    "Trial",
    "TrialMetrics",
    "TrialPage",
    "TrialState",
    "Wire",
]
