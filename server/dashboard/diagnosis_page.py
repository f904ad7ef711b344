"""The page on which a log is dropped."""

from __future__ import annotations

from fastapi import APIRouter, Request
from fastapi.responses import Response

from autotune.explanation.parts import TIME_WORDS, time_by_part
from server.api.dependencies import PlansOf, SettingsOf
from server.api.diagnoses import LogQuestionOf, diagnosis_of_upload
from server.auth.permissions import CallerOf
from server.dashboard import form
from server.dashboard.rendering import render

router = APIRouter()

MOST_PARTS = 6


@router.get("/diagnose")
def page(request: Request, settings: SettingsOf) -> Response:
    context = {
        "here": "diagnose",
        "models": form.model_choices(),
        "machines": form.machine_choices(),
        "adapters": form.adapter_choices(settings.adapters_dir),
    }
    return render(request, "diagnose.html", context)


@router.post("/fragments/diagnosis")
async def answer(
    request: Request,
    question: LogQuestionOf,
    plans: PlansOf,
    settings: SettingsOf,
    caller: CallerOf,
) -> Response:
    found = await diagnosis_of_upload(request, question, plans, settings, caller)
    parts = []
    if found.expected is not None and found.expected.iteration_time_s:
        whole = found.expected.iteration_time_s
        by_part = time_by_part(found.expected.time_parts_s)
        largest = sorted(by_part.items(), key=lambda each: -each[1])[:MOST_PARTS]
        parts = [(TIME_WORDS.get(name, name), part, part / whole) for name, part in largest]
    return render(request, "_diagnosis.html", {"answer": found, "parts": parts})
