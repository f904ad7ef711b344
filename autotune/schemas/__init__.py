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
from autotune.schemas.profiles import (
    ProfileDetail,
    ProfileSummary,
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
    SlurmChoice,
    SpaceQuery,
    SpaceSpec,
    StrategyShape,
)
from autotune.schemas.records import (
    FAILURES,
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
    "FAILURES",
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
    "ProfileDetail",
    "ProfileSummary",
    "ProtocolSpec",
    "Range",
    "Ranked",
    "Recommendation",
    "Refusal",
    "Scalar",
    "SlurmChoice",
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
