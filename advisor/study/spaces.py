"""The study's search space: as its file says, and once the baseline has run, with capture lists planned from its batches."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from advisor.engine.options import parse_options
from advisor.engine.render import changes, fixed_by, serve_arguments
from advisor.errors import InputError, LaunchesFailed
from advisor.inspection.resolution import Resolution
from advisor.progress import Progress
from advisor.records import Candidate, Facts, Trial
from advisor.request import TuneRequest
from advisor.space.candidates import Limits, SearchSpace, SettingChoices, build_space, concrete_settings
from advisor.space.planned import searches_named_lists, with_planned_lists
from advisor.study.planned_lists import plan_lists
from advisor.study.setup import space_spec


class Spaces:
    """Builds the space, asking the installed vLLM about each candidate once; ends its process when no question is left.

    Depends on request, facts and the baseline's trial only: a study that goes on gets the same space.
    """

    def __init__(self, request: TuneRequest, facts: Facts, folder: Path, resolution: Resolution, progress: Progress):
        """`folder`: the study's, where the raw results of a baseline lie."""
        self._request, self._facts, self._folder = request, facts, folder
        self._resolution, self._progress = resolution, progress
        self._answers: dict[str, dict[str, Any]] = {}
        self._settings: tuple[SettingChoices, ...] = ()
        self._built: SearchSpace | None = None
        self._open = False  # whether a baseline may still change the space

    def of(self, baseline: Trial | None = None) -> SearchSpace:
        """The distinct legal candidates, as the installed vLLM resolves them; with planned lists where `baseline` gives some."""
        if not self._settings:
            self._begin()
        before = self._settings
        if self._open and baseline is not None:
            self._open, self._settings = False, self._planned(baseline)
        if self._built is None or self._settings != before:
            self._built = self._build()
        if not self._open:
            self._resolution.close()
        return self._built

    def _begin(self) -> None:
        self._progress.stage("space: candidates that this vLLM accepts, each resolved once")
        request, facts = self._request, self._facts
        fixed = fixed_by(parse_options(request.serve_args), request.serve_env, facts.engine.vllm_version)
        spec = space_spec(request, facts)
        self._settings = concrete_settings(spec, facts.engine, facts.gpu, request.workload, self.limits(), fixed)
        captures = facts.engine.platform != "cpu"
        self._open = captures and searches_named_lists(self._settings, request.workload, self.limits())

    def _planned(self, baseline: Trial) -> tuple[SettingChoices, ...]:
        request = self._request
        found = plan_lists(request.serve_args, request.serve_env, self._facts, self._folder, baseline)
        self._progress.note(found.note)
        return with_planned_lists(self._settings, found.lists, request.workload, self.limits())

    def _build(self) -> SearchSpace:
        facts = self._facts
        built = build_space(self._settings, facts.engine, self._resolve, gpu=facts.gpu, model=facts.model)
        self._progress.note(built.told)
        return built

    def limits(self) -> Limits:
        """Of the baseline as vLLM resolves it. Raises LaunchesFailed where vLLM refuses it."""
        answer = self._resolve([Candidate()])[0]
        if not answer["ok"]:
            raise LaunchesFailed(f"vLLM refuses the baseline: {answer['error']}", "mend --serve-args or --env")
        return Limits.of(answer["resolved"])

    def _resolve(self, candidates: Sequence[Candidate]) -> list[dict[str, Any]]:
        for item in candidates:
            if item.key not in self._answers:
                self._answers[item.key] = self._asked(item)
        return [self._answers[item.key] for item in candidates]

    def _asked(self, candidate: Candidate) -> dict[str, Any]:
        """What the installed vLLM makes of a candidate; not ok where its version has no words for it."""
        request, version = self._request, self._facts.engine.vllm_version
        try:
            arguments, env = serve_arguments(request.serve_args, candidate, version), changes(candidate, version)[1]
        except InputError as error:
            return {"ok": False, "error": error.problem}
        return self._resolution.resolve(arguments, env)
