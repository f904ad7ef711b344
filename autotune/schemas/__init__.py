"""The wire models: requests and responses of the service, shared by server, client and command
line.

Importable without SQLAlchemy, DeepHyper, FastAPI or torch. A name's module is imported when the
name is first asked for: a command that needs two models need not build a hundred.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from autotune.schemas.activity import (
        Activity as Activity,
        CampaignActivity as CampaignActivity,
        RunnerActivity as RunnerActivity,
        TrialActivity as TrialActivity,
    )
    from autotune.schemas.calibrations import (
        CalibrationCreate as CalibrationCreate,
        CalibrationDetail as CalibrationDetail,
        CalibrationDocument as CalibrationDocument,
        CalibrationName as CalibrationName,
        CalibrationSummary as CalibrationSummary,
        ConstantShape as ConstantShape,
        EarlierObservation as EarlierObservation,
        ObservationShape as ObservationShape,
    )
    from autotune.schemas.campaigns import (
        Campaign as Campaign,
        CampaignOutcome as CampaignOutcome,
        CampaignPage as CampaignPage,
        Event as Event,
        FewNodes as FewNodes,
        ListedCampaign as ListedCampaign,
        StartedFrom as StartedFrom,
        StartWorth as StartWorth,
    )
    from autotune.schemas.choices import (
        CampaignState as CampaignState,
        EvaluatorName as EvaluatorName,
        FIGURE_NAMES as FIGURE_NAMES,
        FigureKind as FigureKind,
        FigureName as FigureName,
        FigureScheme as FigureScheme,
        Objective as Objective,
        SearchMethod as SearchMethod,
        Surrogate as Surrogate,
        ParetoCost as ParetoCost,
        ProgressAxis as ProgressAxis,
        ScalingKind as ScalingKind,
        TrainerName as TrainerName,
        TrialState as TrialState,
        UserScope as UserScope,
        figure_kind as figure_kind,
    )
    from autotune.schemas.comparisons import (
        MOST_COMPARED as MOST_COMPARED,
        CampaignComparison as CampaignComparison,
        ComparedCampaign as ComparedCampaign,
        ProgressStep as ProgressStep,
        QuestionDifference as QuestionDifference,
    )
    from autotune.schemas.explanations import (
        ExplainedStrategy as ExplainedStrategy,
        Explanation as Explanation,
        FailureCause as FailureCause,
        SpaceEdges as SpaceEdges,
        SuggestedChange as SuggestedChange,
    )
    from autotune.schemas.figures import (
        CampaignFigure as CampaignFigure,
        FigureChoice as FigureChoice,
        FigureForm as FigureForm,
        FigureOffer as FigureOffer,
        FigureOffers as FigureOffers,
        FigureTable as FigureTable,
        PictureFormat as PictureFormat,
    )
    from autotune.schemas.models import (
        ModelNeeds as ModelNeeds,
        ModelQuery as ModelQuery,
    )
    from autotune.schemas.plans import (
        CampaignPlan as CampaignPlan,
        PlannedStrategy as PlannedStrategy,
        PlanRemedy as PlanRemedy,
    )
    from autotune.schemas.predictions import (
        BaselinePlan as BaselinePlan,
        BrokenRule as BrokenRule,
        CampaignCost as CampaignCost,
        CampaignGain as CampaignGain,
        DryRun as DryRun,
        LeftOut as LeftOut,
        MemoryChange as MemoryChange,
        Prediction as Prediction,
        SpaceReport as SpaceReport,
        Sweep as Sweep,
        SweepQuery as SweepQuery,
        SweepRow as SweepRow,
    )
    from autotune.schemas.adapters import AdapterSummary as AdapterSummary
    from autotune.schemas.profiles import (
        ProfileDetail as ProfileDetail,
        ProfileSummary as ProfileSummary,
    )
    from autotune.schemas.recommendations import (
        Baseline as Baseline,
        FrontPoint as FrontPoint,
        LaunchNeed as LaunchNeed,
        LaunchScript as LaunchScript,
        Neighbour as Neighbour,
        ParetoFront as ParetoFront,
        Ranked as Ranked,
        Recommendation as Recommendation,
        SpaceStanding as SpaceStanding,
        TrainerOffer as TrainerOffer,
        TrainingCost as TrainingCost,
        TrainingSaving as TrainingSaving,
    )
    from autotune.schemas.requests import (
        NO_BASELINE as NO_BASELINE,
        NO_CALIBRATION as NO_CALIBRATION,
        Budget as Budget,
        BudgetExtension as BudgetExtension,
        CampaignChange as CampaignChange,
        AdapterFile as AdapterFile,
        CampaignCreate as CampaignCreate,
        CampaignRepeat as CampaignRepeat,
        PredictionQuery as PredictionQuery,
        ProtocolSpec as ProtocolSpec,
        RayChoice as RayChoice,
        ScreenLayers as ScreenLayers,
        ScreenNodes as ScreenNodes,
        SlurmChoice as SlurmChoice,
        SpaceQuery as SpaceQuery,
    )
    from autotune.schemas.scaling import (
        ScaledStrategy as ScaledStrategy,
        ScalingQuery as ScalingQuery,
        ScalingSeries as ScalingSeries,
        ScalingStudy as ScalingStudy,
        UnscaledStrategy as UnscaledStrategy,
    )
    from autotune.schemas.shapes import (
        ExpertsShape as ExpertsShape,
        LatentAttentionShape as LatentAttentionShape,
        MachineChoice as MachineChoice,
        MachineShape as MachineShape,
        MambaShape as MambaShape,
        ModelChoice as ModelChoice,
        ModelShape as ModelShape,
        StrategyShape as StrategyShape,
    )
    from autotune.schemas.spaces import (
        BatchBounds as BatchBounds,
        Dimension as Dimension,
        Range as Range,
        SpaceSpec as SpaceSpec,
    )
    from autotune.schemas.studies import (
        StudiedStrategy as StudiedStrategy,
        StudyPlan as StudyPlan,
        StudySpec as StudySpec,
    )
    from autotune.schemas.trials import (
        FAILURES as FAILURES,
        Accumulation as Accumulation,
        EnergyWindow as EnergyWindow,
        Expectation as Expectation,
        NodePower as NodePower,
        Routing as Routing,
        Trial as Trial,
        TrialMetrics as TrialMetrics,
        TrialPage as TrialPage,
        TrialPower as TrialPower,
    )
    from autotune.schemas.users import (
        EMAIL_ADDRESS as EMAIL_ADDRESS,
        SCOPES as SCOPES,
        USER_NAME as USER_NAME,
        AuditEntry as AuditEntry,
        AuditPage as AuditPage,
        BrowserKey as BrowserKey,
        EmailAddress as EmailAddress,
        NewToken as NewToken,
        User as User,
        UserChange as UserChange,
        UserCreate as UserCreate,
        UserLimits as UserLimits,
        WhoAmI as WhoAmI,
    )
    from autotune.schemas.wire import (
        AT_OWN_ACCUMULATION as AT_OWN_ACCUMULATION,
        FieldProblem as FieldProblem,
        Positive as Positive,
        Problem as Problem,
        TrialPurpose as TrialPurpose,
        Wire as Wire,
    )

HOMES = {
    "activity": ("Activity", "CampaignActivity", "RunnerActivity", "TrialActivity"),
    "calibrations": (
        "CalibrationCreate",
        "CalibrationDetail",
        "CalibrationDocument",
        "CalibrationName",
        "CalibrationSummary",
        "ConstantShape",
        "EarlierObservation",
        "ObservationShape",
    ),
    "campaigns": (
        "Campaign",
        "CampaignOutcome",
        "CampaignPage",
        "Event",
        "FewNodes",
        "ListedCampaign",
        "StartedFrom",
        "StartWorth",
    ),
    "choices": (
        "CampaignState",
        "EvaluatorName",
        "FIGURE_NAMES",
        "FigureKind",
        "FigureName",
        "FigureScheme",
        "Objective",
        "SearchMethod",
        "Surrogate",
        "ParetoCost",
        "ProgressAxis",
        "ScalingKind",
        "TrainerName",
        "TrialState",
        "UserScope",
        "figure_kind",
    ),
    "comparisons": (
        "MOST_COMPARED",
        "CampaignComparison",
        "ComparedCampaign",
        "ProgressStep",
        "QuestionDifference",
    ),
    "explanations": (
        "ExplainedStrategy",
        "Explanation",
        "FailureCause",
        "SpaceEdges",
        "SuggestedChange",
    ),
    "figures": (
        "CampaignFigure",
        "FigureChoice",
        "FigureForm",
        "FigureOffer",
        "FigureOffers",
        "FigureTable",
        "PictureFormat",
    ),
    "models": (
        "ModelNeeds",
        "ModelQuery",
    ),
    "plans": (
        "CampaignPlan",
        "PlannedStrategy",
        "PlanRemedy",
    ),
    "predictions": (
        "BaselinePlan",
        "BrokenRule",
        "CampaignCost",
        "CampaignGain",
        "DryRun",
        "LeftOut",
        "MemoryChange",
        "Prediction",
        "SpaceReport",
        "Sweep",
        "SweepQuery",
        "SweepRow",
    ),
    "adapters": ("AdapterSummary",),
    "profiles": (
        "ProfileDetail",
        "ProfileSummary",
    ),
    "recommendations": (
        "Baseline",
        "FrontPoint",
        "LaunchNeed",
        "LaunchScript",
        "Neighbour",
        "ParetoFront",
        "Ranked",
        "Recommendation",
        "SpaceStanding",
        "TrainerOffer",
        "TrainingCost",
        "TrainingSaving",
    ),
    "requests": (
        "NO_BASELINE",
        "NO_CALIBRATION",
        "AdapterFile",
        "Budget",
        "BudgetExtension",
        "CampaignChange",
        "CampaignCreate",
        "CampaignRepeat",
        "PredictionQuery",
        "ProtocolSpec",
        "RayChoice",
        "ScreenLayers",
        "ScreenNodes",
        "SlurmChoice",
        "SpaceQuery",
    ),
    "scaling": (
        "ScaledStrategy",
        "ScalingQuery",
        "ScalingSeries",
        "ScalingStudy",
        "UnscaledStrategy",
    ),
    "shapes": (
        "ExpertsShape",
        "LatentAttentionShape",
        "MachineChoice",
        "MachineShape",
        "MambaShape",
        "ModelChoice",
        "ModelShape",
        "StrategyShape",
    ),
    "spaces": (
        "BatchBounds",
        "Dimension",
        "Range",
        "SpaceSpec",
    ),
    "studies": (
        "StudiedStrategy",
        "StudyPlan",
        "StudySpec",
    ),
    "trials": (
        "FAILURES",
        "Accumulation",
        "EnergyWindow",
        "Expectation",
        "NodePower",
        "Routing",
        "Trial",
        "TrialMetrics",
        "TrialPage",
        "TrialPower",
    ),
    "users": (
        "SCOPES",
        "EMAIL_ADDRESS",
        "EmailAddress",
        "USER_NAME",
        "AuditEntry",
        "AuditPage",
        "BrowserKey",
        "NewToken",
        "User",
        "UserChange",
        "UserCreate",
        "UserLimits",
        "WhoAmI",
    ),
    "wire": (
        "AT_OWN_ACCUMULATION",
        "FieldProblem",
        "Positive",
        "Problem",
        "TrialPurpose",
        "Wire",
    ),
}
"""The names by the module that has them."""
MODULES = {name: module for module, names in HOMES.items() for name in names}
__all__ = list(MODULES)


def __getattr__(name: str) -> Any:
    if name not in MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{MODULES[name]}"), name)
    globals()[name] = found  # so that it is asked for once
    return found
