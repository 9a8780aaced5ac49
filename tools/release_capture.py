"""Runs the capture functions of one unpacked vLLM release, without its dependencies: functions and classes are taken out of
the source files and executed with stand-ins for everything around them. No file of the release is imported.

`Release(folder).run(case)` takes a dictionary with the fields of CaptureRequest and gives what the release makes of it:
configured and captured list, the error it stops with, the FULL graphs of decode, and what runs each decode batch.
"""

from __future__ import annotations

import ast
import builtins
import dataclasses
import enum
import inspect
import itertools
import sys
import typing
from collections import defaultdict
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any
from unittest import mock

V2_FROM = (0, 12, 0)  # the first release with vllm/v1/worker/gpu
_ADJUST = "adjust_cudagraph_sizes_for_spec_decode"


class Log:
    """Stand-in for vLLM's logger that keeps the warnings."""

    def __init__(self) -> None:
        self.warnings: list[str] = []

    def warning(self, text: str, *_: Any) -> None:
        self.warnings.append(text)

    def __getattr__(self, _: str) -> Any:
        return lambda *_args, **_kwargs: None


class Release:
    """The source of one release at `folder` (the one that holds config, v1 and so on)."""

    def __init__(self, folder: Path, version: tuple[int, ...]):
        self.folder, self.version = folder, version
        self.log = Log()
        self._trees: dict[str, ast.Module] = {}
        self.names: dict[str, Any] = {
            "logger": self.log,
            "envs": SimpleNamespace(VLLM_USE_V1=True),
            "field": lambda default_factory: default_factory,
            "round_up": lambda size, multiple: -(-size // multiple) * multiple,
            "product": itertools.product,
            "groupby": itertools.groupby,
            "defaultdict": defaultdict,
            "dataclass": dataclasses.dataclass,
            "replace": dataclasses.replace,
            "NamedTuple": typing.NamedTuple,
            "Optional": typing.Optional,
            "enum": enum,
            "is_breakable_cudagraph_enabled": lambda: False,
        }
        self.early = version < (0, 11, 2)
        config = next(f for f in ("config/vllm.py", "config/__init__.py", "config.py") if (folder / f).is_file())
        compilation = "config/compilation.py" if (folder / "config/compilation.py").is_file() else config
        self.compilation_file = compilation
        if version >= (0, 10, 2):
            self.modes = self._take(compilation, "CUDAGraphMode")
        self.vllm_config = self._part(
            config,
            "VllmConfig",
            "_set_cudagraph_sizes update_sizes_for_sequence_parallelism num_speculative_tokens "
            "uniform_decode_query_len pad_for_cudagraph",
        )
        self.compilation_config = self._part(
            compilation,
            "CompilationConfig",
            f"init_with_cudagraph_sizes post_init_cudagraph_sizes compute_bs_to_padded_graph_size {_ADJUST}",
        )
        if version >= (0, 10, 2):
            self.names["BatchDescriptor"] = self._take("forward_context.py", "BatchDescriptor")
            self.dispatcher = self._take("v1/cudagraph_dispatcher.py", "CudagraphDispatcher")
        if version >= V2_FROM:
            for name in ("BatchExecutionDescriptor", "_is_compatible", "get_cudagraph_sizes", "get_cudagraph_size"):
                self._take("v1/worker/gpu/cudagraph_utils.py", name)
            self.manager = self._take("v1/worker/gpu/cudagraph_utils.py", "CudaGraphManager")

    # ------------------------------------------------------------ taking code out of files

    def _tree(self, file: str) -> ast.Module:
        if file not in self._trees:
            self._trees[file] = ast.parse((self.folder / file).read_text())
        return self._trees[file]

    def _take(self, file: str, name: str) -> Any:
        """The top-level class or function, executed; None where this release has none of that name."""
        for node in self._tree(file).body:
            if getattr(node, "name", None) == name:
                self._execute([node])
                return self.names[name]
        return None

    def _part(self, file: str, class_name: str, wanted: str) -> type:
        """A plain class with some of the methods of a (pydantic) class."""
        found = next(node for node in self._tree(file).body if getattr(node, "name", None) == class_name)
        methods = [node for node in found.body if getattr(node, "name", None) in wanted.split()]
        self._execute([ast.ClassDef(class_name, [], [], methods, [])])
        return self.names[class_name]

    def _execute(self, nodes: list[ast.stmt], local: dict[str, Any] | None = None) -> None:
        future = ast.parse("from __future__ import annotations").body
        module = ast.fix_missing_locations(ast.Module([*future, *nodes], []))
        for node in ast.walk(module):
            if isinstance(node, ast.Name) and node.id not in self.names and not hasattr(builtins, node.id):
                self.names[node.id] = mock.MagicMock(name=node.id)
        scope = self.names if local is None else {**self.names, **local}
        exec(compile(module, "<release>", "exec"), scope)

    def _statement(self, file: str, call: str) -> ast.If | None:
        """The innermost `if` of the file whose body calls the method."""
        found = None
        for node in ast.walk(self._tree(file)):
            if isinstance(node, ast.If) and any(
                isinstance(inner, ast.Call) and getattr(inner.func, "attr", None) == call
                for statement in node.body
                for inner in ast.walk(statement)
            ):
                found = node
        return found

    # ------------------------------------------------------------ running it

    def run(self, case: dict[str, Any]) -> dict[str, Any]:
        """Keys: error (class name, or absent), warned, configured, sizes; with FULL decode also graphs and padded."""
        self.log.warnings.clear()
        config = self._config(case)
        result: dict[str, Any] = {}
        platform = SimpleNamespace(
            is_device_capability_family=lambda family: (case.get("compute_capability") or (0,))[0] * 10 == family
        )
        stand_ins = {"vllm": ModuleType("vllm"), "vllm.platforms": SimpleNamespace(current_platform=platform)}
        with mock.patch.dict(sys.modules, stand_ins):  # type: ignore[arg-type]
            try:
                config._set_cudagraph_sizes()
                compilation = config.compilation_config
                result["configured"] = sorted(compilation.cudagraph_capture_sizes)
                if case["graphs"]:
                    self._round(case, config)
                    result["sizes"] = sorted(set(compilation.cudagraph_capture_sizes))
                    if self.version >= (0, 10, 2) and result["sizes"]:
                        manage = self._second_runner if case["runner_v2"] else self._first_runner
                        result["graphs"], result["padded"] = manage(case, config)
            except (AssertionError, ValueError) as error:
                result["error"] = type(error).__name__
        result["warned"] = bool(self.log.warnings)
        return result

    def _config(self, case: dict[str, Any]) -> Any:
        compilation = self.compilation_config()
        sizes = case["sizes"]
        elsewhere = self.early and case["sizes_by_flag"]
        compilation.cudagraph_capture_sizes = None if sizes is None or elsewhere else list(sizes)
        compilation.compile_sizes = None
        compilation.max_cudagraph_capture_size = case["maximum"]
        compilation.pass_config = SimpleNamespace(
            enable_sequence_parallelism=case["sequence_parallel"], enable_sp=case["sequence_parallel"]
        )
        if self.version >= (0, 10, 2):
            compilation.cudagraph_mode = self.modes[case["cudagraph_mode"]]
        speculative = None
        if case["speculative_tokens"]:
            speculative = SimpleNamespace(
                num_speculative_tokens=case["speculative_tokens"], uses_dynamic_speculative_decoding=lambda: False
            )
        config = self.vllm_config()
        config.compilation_config = compilation
        config.model_config = SimpleNamespace(enforce_eager=case["enforce_eager"], max_model_len=4096)
        config.parallel_config = SimpleNamespace(tensor_parallel_size=case["tensor_parallel"], data_parallel_size=1)
        config.scheduler_config = SimpleNamespace(
            max_num_seqs=case["max_num_seqs"], max_num_batched_tokens=case["max_num_batched_tokens"]
        )
        config.speculative_config, config.diffusion_config, config.lora_config = speculative, None, None
        config.cache_config = SimpleNamespace(use_kda_recoverssm=False)
        config.performance_mode = case["performance_mode"]
        if self.early:
            config.scheduler_config.cuda_graph_sizes = self._graph_sizes_option(case)
        return config

    def _graph_sizes_option(self, case: dict[str, Any]) -> list[int]:
        """--cuda-graph-sizes as given, or the default that SchedulerConfig makes of it."""
        if case["sizes"] is not None and case["sizes_by_flag"]:
            return list(case["sizes"])
        if case["maximum"] is not None:
            return [case["maximum"]]
        file = "config/scheduler.py" if (self.folder / "config/scheduler.py").is_file() else "config.py"
        scheduler = next(node for node in self._tree(file).body if getattr(node, "name", None) == "SchedulerConfig")
        field = next(
            node
            for node in ast.walk(scheduler)
            if getattr(getattr(node, "target", None), "id", "") == "cuda_graph_sizes"
        )
        names = {"field": lambda default_factory: default_factory()}
        filled = SimpleNamespace(
            cuda_graph_sizes=eval(ast.unparse(field.value), names), max_num_seqs=case["max_num_seqs"]
        )
        for node in ast.walk(scheduler):
            if isinstance(node, ast.If) and ast.unparse(node.test) == "not self.cuda_graph_sizes":
                self._execute([node], {"self": filled})
        return filled.cuda_graph_sizes

    def _round(self, case: dict[str, Any], config: Any) -> None:
        """The release's own `if` around the rounding, for the model runner of the case."""
        query = 1 + case["speculative_tokens"]
        runner = "v1/worker/gpu_model_runner.py"
        if self.early:
            self._dummy_runs(runner, case, config, query)
            return
        if self.version < (0, 20, 2):
            if case["runner_v2"]:
                return
            self._execute(
                [self._statement(runner, _ADJUST)],
                {
                    "self": SimpleNamespace(
                        uniform_decode_query_len=query,
                        compilation_config=config.compilation_config,
                        parallel_config=config.parallel_config,
                    ),
                    "cudagraph_mode": config.compilation_config.cudagraph_mode,
                },
            )
            return
        self._execute(
            [self._statement(self.compilation_file, _ADJUST)],
            {
                "self": config.compilation_config,
                "cudagraph_mode": config.compilation_config.cudagraph_mode,
                "uniform_decode_query_len": query,
                "tensor_parallel_size": case["tensor_parallel"],
                "use_v2_model_runner": case["runner_v2"],
            },
        )
        if case["runner_v2"]:
            self._manager(config, query)  # its constructor rounds in some releases

    def _dummy_runs(self, runner: str, case: dict[str, Any], config: Any, query: int) -> None:
        """Until 0.11.0: the assertion that every captured size meets in the model runner's dummy run."""
        sizes = config.compilation_config.cudagraph_capture_sizes
        if self.version >= (0, 10, 2) and config.compilation_config.cudagraph_mode.mixed_mode() == self.modes.NONE:
            sizes = [size for size in sizes if query <= size <= case["max_num_seqs"] * query]
        check = next(
            node
            for node in ast.walk(self._tree(runner))
            if isinstance(node, ast.Assert)
            and ast.unparse(node.test) == "num_tokens <= self.scheduler_config.max_num_batched_tokens"
        )
        for size in sizes:
            self._execute([check], {"self": config, "num_tokens": size})

    def _batches(self, case: dict[str, Any]) -> list[tuple[int, int]]:
        """(requests, tokens) of every decode batch that the scheduler could make."""
        query = 1 + case["speculative_tokens"]
        most = min(case["max_num_seqs"], case["max_num_batched_tokens"] // query)
        return [(count, count * query) for count in range(1, most + 1)]

    def _first_runner(self, case: dict[str, Any], config: Any) -> tuple[list[int], dict[int, int]]:
        query, compilation = 1 + case["speculative_tokens"], config.compilation_config
        mode = compilation.cudagraph_mode
        dispatcher = object.__new__(self.dispatcher)
        dispatcher.vllm_config, dispatcher.compilation_config = config, compilation
        dispatcher.cudagraph_mode, dispatcher.uniform_decode_query_len = mode, query
        dispatcher.cudagraph_keys = {self.modes.PIECEWISE: set(), self.modes.FULL: set()}
        dispatcher.keys_initialized, dispatcher.specialize_lora_count = False, False
        dispatcher.initialize_cudagraph_keys(mode, query)
        padded: dict[int, int] = {}
        for _, tokens in self._batches(case):
            try:
                ran, key = self._dispatch(dispatcher, config, tokens)
            except AssertionError:  # the server would die on this batch
                continue
            if ran == self.modes.FULL:
                padded[tokens] = key.num_tokens
        return sorted({key.num_tokens for key in dispatcher.cudagraph_keys[self.modes.FULL]}), padded

    def _dispatch(self, dispatcher: Any, config: Any, tokens: int) -> Any:
        if self.version >= (0, 12, 0):
            return dispatcher.dispatch(num_tokens=tokens, uniform_decode=True, has_lora=False)
        # Until 0.11.2 the model runner pads the batch itself before it asks.
        if tokens <= max(config.compilation_config.cudagraph_capture_sizes):
            tokens = config.pad_for_cudagraph(tokens)
        return dispatcher.dispatch(self.names["BatchDescriptor"](num_tokens=tokens, uniform_decode=True))

    def _manager(self, config: Any, query: int) -> Any:
        offered = {
            "vllm_config": config,
            "device": None,
            "use_aux_hidden_state_outputs": False,
            "uses_mrope": False,
            "cudagraph_mode": config.compilation_config.cudagraph_mode,
            "decode_query_len": query,
        }
        return self.manager(**{k: v for k, v in offered.items() if k in inspect.signature(self.manager).parameters})

    def _second_runner(self, case: dict[str, Any], config: Any) -> tuple[list[int], dict[int, int]]:
        query = 1 + case["speculative_tokens"]
        manager = self._manager(config, query)
        if self.version < (0, 18, 1):
            return self._old_second_runner(case, manager, query)
        manager._graphs_captured = True
        padded: dict[int, int] = {}
        for count, tokens in self._batches(case):
            offered = {
                "num_reqs": count,
                "num_tokens": tokens,
                "uniform_token_count": query,
                "num_active_loras": 0,
                "max_query_len": query,
            }
            known = inspect.signature(manager.dispatch).parameters
            graph = manager.dispatch(**{k: v for k, v in offered.items() if k in known})
            if graph.cg_mode == self.modes.FULL:
                padded[tokens] = graph.num_tokens
        return sorted({graph.num_tokens for graph in manager._capture_descs.get(self.modes.FULL, [])}), padded

    def _old_second_runner(self, case: dict[str, Any], manager: Any, query: int) -> tuple[list[int], dict[int, int]]:
        """Until 0.17.1: tables from a number of tokens to the size of the graph that takes it."""
        table = manager.cudagraph_sizes
        if self.version >= (0, 17, 1):
            if manager.cudagraph_mode.separate_routine():
                table = manager.uniform_decode_cudagraph_sizes
            manager.graphs = dict.fromkeys(table.values())

        def size_of(count: int, tokens: int) -> int | None:
            if self.version >= (0, 17, 1):
                mode, size = manager.get_cudagraph_runtime_mode(count, tokens, query)
                return size if mode == self.modes.FULL else None
            if self.version >= (0, 15, 1):
                return manager.get_cudagraph_size(tokens, [query] * count)
            output = SimpleNamespace(num_scheduled_tokens=dict.fromkeys(range(count), query))
            return manager.get_cudagraph_size(output, tokens)

        sizes = {tokens: size_of(count, tokens) for count, tokens in self._batches(case)}
        # Before 0.17.1 graphs are captured too that no batch with draft tokens may use: ask with the smallest batch there is.
        full = manager.cudagraph_mode.has_full_cudagraphs()
        usable = full and (self.version >= (0, 17, 1) or size_of(1, 1) is not None)
        padded = {tokens: size for tokens, size in sizes.items() if size is not None}
        return sorted(set(table.values())) if usable else [], padded
