"""The target script without vLLM: a scheduler that packs steps as vLLM's does, with and without steps in flight."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from advisor.target import attention

MOST = 8192  # tokens of a step


class Core:
    """Schedules as vLLM's scheduler does: what decodes first, then prompts as they come, until the budget is spent.

    `pipelined`: a call launches a step and takes back the one before, as with asynchronous scheduling.
    """

    def __init__(self, pipelined):
        self.waiting, self.running = {}, {}  # name -> [tokens of the prompt that are left, tokens to produce]
        self.batch_queue = [] if pipelined else None
        self.scheduler, self.slow_s = Scheduler(self), 0.0

    def schedule(self):
        left, step = self.scheduler.max_num_scheduled_tokens, {}
        for name, state in list(self.running.items()):
            if left and state[0]:  # the rest of a prompt
                self._take(step, name, state, min(left, state[0]))
            elif left and state[1]:
                state[1] -= 1
                step[name] = 1
            left = self.scheduler.max_num_scheduled_tokens - sum(step.values())
        for name in list(self.waiting):
            if not left:
                break
            state = self.running[name] = self.waiting.pop(name)
            self._take(step, name, state, min(left, state[0]))
            left = self.scheduler.max_num_scheduled_tokens - sum(step.values())
        return SimpleNamespace(num_scheduled_tokens=step, tokens={n: 1 for n in step if not self.running[n][0]})

    def _take(self, step, name, state, tokens):
        step[name] = tokens
        state[0] -= tokens
        if not state[0]:
            state[1] -= 1  # the last part of a prompt gives the first token

    def get_output(self):
        time.sleep(self.slow_s)
        if self.batch_queue is None:
            return self._done(self.scheduler.schedule()) if self.scheduler.has_requests() else self._done(None)
        if self.scheduler.has_requests():
            self.batch_queue.append(self.scheduler.schedule())
            if len(self.batch_queue) < 2:
                return self._done(None)
        return self._done(self.batch_queue.pop(0) if self.batch_queue else None)

    def _done(self, step):
        tokens = step.tokens if step else {}
        for name in [name for name in tokens if name in self.running and not any(self.running[name])]:
            del self.running[name]
        return SimpleNamespace(outputs=[SimpleNamespace(request_id=name, new_token_ids=[1]) for name in tokens])


class Scheduler:
    def __init__(self, core):
        self.core, self.max_num_scheduled_tokens = core, MOST

    def schedule(self, throttle_prefills=False):
        return self.core.schedule()

    def has_requests(self):
        return bool(self.core.waiting or self.core.running)


@pytest.fixture(params=[False, True], ids=["one by one", "pipelined"])
def engine(request, monkeypatch):
    return made(Core(request.param), monkeypatch)


def made(core, monkeypatch, tokens=100_000):
    found = attention.Attention()
    config = SimpleNamespace(
        model_config=SimpleNamespace(max_model_len=32768),
        cache_config=SimpleNamespace(num_gpu_blocks=tokens // 16, block_size=16),
    )
    found.core, found.cuda, found.prompts = core, True, []

    def add(count, tokens, new_tokens, seed):
        names = [f"{len(found.prompts)}-{index}" for index in range(count)]
        found.prompts.append((count, tokens, seed))
        core.waiting.update({name: [tokens, new_tokens] for name in names})
        return names

    def abort_request(names, internal=False):
        assert internal
        for name in names:
            core.waiting.pop(name, None)
            core.running.pop(name, None)

    found.engine = SimpleNamespace(engine_core=core, vllm_config=config, abort_request=abort_request)
    monkeypatch.setattr(found, "add", add)
    return found


def ask(engine, phase, batch, context, warmup=3, steps=6, limit_s=60, **more):
    request = {"do": phase, "batch": batch, "context": context, "warmup": warmup, "steps": steps, "limit_s": limit_s}
    return attention.stepped.answer(engine, {**request, **more})


def is_empty(engine):
    return not engine.core.scheduler.has_requests() and not engine.core.batch_queue


def test_decode_steps_hold_one_token_of_each_request(engine):
    found = ask(engine, "decode", 4, 100)
    assert found["ok"], found
    assert (found["steps"], found["context_tokens"]) == (6, pytest.approx(100, abs=3))
    assert set(found["step_ms"]) == {"median", "low", "high"}
    assert is_empty(engine)
    assert "schedule" not in vars(engine.core.scheduler)  # the scheduler is as it was


def test_a_prefill_step_holds_so_many_prompts_whole_though_more_would_fit(engine):
    found = ask(engine, "prefill", 2, 512, warmup=2, seed=0)
    assert found["ok"], found
    assert (found["steps"], found["context_tokens"]) == (6, 512)
    assert engine.prompts[0][0] >= 2 * (2 + 6)
    assert engine.core.scheduler.max_num_scheduled_tokens == MOST
    assert is_empty(engine)


def test_a_mixed_step_holds_the_batch_and_one_prompt(engine):
    found = ask(engine, "mixed", 8, 200, chunk=64, seed=0)
    assert found["ok"], found
    assert found["context_tokens"] == pytest.approx(200, abs=3)
    assert engine.core.scheduler.max_num_scheduled_tokens == MOST
    assert is_empty(engine)


def test_without_the_budget_a_step_would_hold_all_prompts_and_is_refused(engine, monkeypatch):
    monkeypatch.setattr(attention.Budget, "__enter__", lambda self: self)
    found = ask(engine, "prefill", 2, 512, warmup=2, seed=0)
    assert (found["ok"], found["error_type"]) == (False, "Refusal")
    assert "where 2 x 512 tokens was meant" in found["error"]
    assert is_empty(engine)


def test_prompts_that_are_cached_are_no_prefill(engine, monkeypatch):
    original = engine.core._take

    def cached(step, name, state, tokens):
        state[0] -= tokens - 16  # all but the last block was found
        original(step, name, state, 16)

    monkeypatch.setattr(engine.core, "_take", cached)
    found = ask(engine, "prefill", 1, 512, warmup=2, seed=0)
    assert (found["ok"], found["error_type"]) == (False, "Refusal")
    assert "16 tokens" in found["error"]


def test_what_fits_in_no_step_and_in_no_cache_is_refused(engine):
    assert "9,216 tokens are more than the 8,192 of a step" in ask(engine, "prefill", 9, 1024, seed=0)["error"]
    assert "the KV cache holds 100,000 tokens" in ask(engine, "decode", 100, 4096)["error"]
    assert "the KV cache holds 100,000 tokens" in ask(engine, "mixed", 90, 1100, chunk=2048, seed=0)["error"]
    assert "model length" in ask(engine, "decode", 1, 32768)["error"]
    assert is_empty(engine)


def test_a_scheduler_without_a_budget_of_tokens_is_told(engine):
    del engine.core.scheduler.max_num_scheduled_tokens
    with pytest.raises(attention.Refusal, match="has no budget of tokens"):
        attention.Budget(engine.core.scheduler, 10)


def test_time_that_is_over_ends_a_row_and_leaves_nothing_behind(engine):
    engine.core.slow_s = 0.02
    for phase, more in (("prefill", {"seed": 0}), ("mixed", {"seed": 0, "chunk": 64})):
        found = ask(engine, phase, 2, 256, steps=40, limit_s=0.2, **more)
        assert (found["ok"], found["error_type"]) == (False, "Late"), found
    found = ask(engine, "decode", 40, 2400, limit_s=0.1)
    assert found["error_type"] == "Late"
    assert "of 40 prompts" in found["error"]
    assert is_empty(engine)


def test_every_backend_gets_the_same_prompts_and_no_row_those_of_another(monkeypatch):
    seeds = {attention.row_seed(*words) for words in (
        ("prefill", 1, 512, 0), ("prefill", 1, 512, 1), ("prefill", 2, 512, 0), ("prefill", 1, 2048, 0),
        ("mixed", 1, 512, 0), ("mixed", 512, 1, 0),
    )}  # fmt: skip
    assert len(seeds) == 6
    assert attention.row_seed("mixed", 64, 4096, 0) == attention.row_seed("mixed", 64, 4096, 0)
    engine = made(Core(False), monkeypatch)
    ask(engine, "decode", 2, 100)
    ask(engine, "mixed", 2, 100, chunk=64, seed=1)
    assert [seed for count, _, seed in engine.prompts if count == 2] == [1, 1]  # found in the prefix cache


def test_an_engine_that_breaks_is_told_with_its_first_error(engine, monkeypatch):
    monkeypatch.setattr(engine.core, "get_output", lambda: 1 / 0)
    found = ask(engine, "mixed", 2, 100, chunk=64, seed=0)
    assert (found["ok"], found["error_type"]) == (False, "ZeroDivisionError")


# ---------------------------------------------------------------- what runs


def layer(name, version=None, prefill=None, short=1):
    def named(name):
        builder = type("Builder", (), {"reorder_batch_threshold": short})
        return type(
            "Backend", (), {"get_name": staticmethod(lambda: name), "get_builder_cls": staticmethod(lambda: builder)}
        )

    impl = SimpleNamespace(vllm_flash_attn_version=version) if version else SimpleNamespace()
    return SimpleNamespace(
        attn_backend=named(name), impl=impl, **({"prefill_backend": named(prefill)} if prefill else {})
    )


def model(*layers):
    return SimpleNamespace(modules=lambda: [SimpleNamespace(), *layers, SimpleNamespace(attn_backend="a name", impl=1)])


def test_the_layers_say_which_attention_runs():
    none = {"prefill_backend": None, "prompts_as_decode": None}
    found = attention.attention_of(model(layer("FLASH_ATTN", 3), layer("FLASH_ATTN", 3), layer("TRITON_ATTN", 2)))
    assert found == [
        {**none, "backend": "FLASH_ATTN", "flash_attention_version": 3, "layers": 2},
        {**none, "backend": "TRITON_ATTN", "flash_attention_version": None, "layers": 1},
    ]
    (mla,) = attention.attention_of(model(layer("FLASHMLA", prefill="FLASH_ATTN", short=128)))
    assert (mla["backend"], mla["prefill_backend"], mla["prompts_as_decode"]) == ("FLASHMLA", "FLASH_ATTN", 128)
    (mla,) = attention.attention_of(model(layer("TRITON_MLA", prefill="FLASH_ATTN")))
    assert mla["prompts_as_decode"] is None
    assert attention.short_prompts(SimpleNamespace()) is None  # another release
    assert attention.attention_of(model()) == []


def test_a_flash_attention_that_is_not_there_is_refused_before_the_model_is_loaded(monkeypatch):
    interface = SimpleNamespace(
        is_fa_version_supported=lambda version: version != 3, fa_version_unsupported_reason=lambda _: "only on 9.x"
    )

    def imported(name):
        if name.endswith("flash_attn_interface"):
            return interface
        raise ModuleNotFoundError("No module named 'cutlass'")

    monkeypatch.setattr(attention.stepped, "cuda", lambda: True)
    monkeypatch.setattr(attention.importlib, "import_module", imported)
    attention.check_flash_attention(None)
    attention.check_flash_attention(2)
    with pytest.raises(attention.Refusal, match=r"FlashAttention 3: only on 9\.x"):
        attention.check_flash_attention(3)
    with pytest.raises(attention.Refusal, match=r"FlashAttention 4 cannot be imported: ModuleNotFoundError: .*cutlass"):
        attention.check_flash_attention(4)
