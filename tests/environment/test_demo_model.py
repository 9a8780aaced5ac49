"""The model folder that is tuned when no model is given, written by the target interpreter."""

import json
import os
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "advisor" / "target" / "demo_model.py"

pytestmark = pytest.mark.engine


def write(python: str, folder: Path, size: str, hash_seed: str) -> dict:
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    command = [python, str(SCRIPT), str(folder), "--size", size]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def test_the_same_bytes_every_time(engine_python, tmp_path):
    write(engine_python, tmp_path / "one", "demo", "1")
    write(engine_python, tmp_path / "two", "demo", "2")
    assert contents(tmp_path / "one") == contents(tmp_path / "two")


@pytest.mark.parametrize(("size", "layers"), [("demo", 8), ("tiny", 2)])
def test_config_and_tokenizer_agree(engine_python, tmp_path, size, layers):
    facts = write(engine_python, tmp_path / "model", size, "0")
    config = json.loads((tmp_path / "model/config.json").read_text())
    vocabulary = json.loads((tmp_path / "model/tokenizer.json").read_text())["model"]["vocab"]
    assert config["num_hidden_layers"] == layers
    assert config["vocab_size"] == len(vocabulary) == facts["vocab_size"] >= 10_000
    assert vocabulary["<s>"] == config["bos_token_id"]
    assert vocabulary["</s>"] == config["eos_token_id"]


def test_transformers_counts_the_same_parameters(engine_python, tmp_path):
    facts = write(engine_python, tmp_path / "model", "tiny", "0")
    code = (
        "import sys, transformers as t\n"
        "config = t.AutoConfig.from_pretrained(sys.argv[1])\n"
        "model = t.AutoModelForCausalLM.from_config(config)\n"
        "ids = t.AutoTokenizer.from_pretrained(sys.argv[1])('ba ka stone')['input_ids']\n"
        "assert ids and max(ids) < config.vocab_size\n"
        "print(sum(p.numel() for p in model.parameters()))"
    )
    command = [engine_python, "-c", code, str(tmp_path / "model")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert int(done.stdout.split()[-1]) == facts["parameters"]
