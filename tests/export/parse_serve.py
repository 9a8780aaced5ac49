"""Runs in the target interpreter: parses `vllm serve` lines with vLLM's own parser, starts nothing.

stdin: a JSON list of argument lists, each from `serve` on. stdout: one JSON line, a dictionary name -> repr of the value
for each, in the spelling that vLLM ends up with: the model from either place, capture sizes inside the compilation config.
"""

from __future__ import annotations

import copy
import json
import sys

from vllm.entrypoints.cli import serve
from vllm.utils.argparse_utils import FlexibleArgumentParser


def parsed(parser: FlexibleArgumentParser, words: list[str]) -> dict[str, str]:
    args = vars(parser.parse_args(words))
    tag = args.pop("model_tag", None)
    args["model"] = tag if tag is not None else args["model"]  # as vLLM's own serve command does
    config = args["compilation_config"] = copy.deepcopy(
        args["compilation_config"]
    )  # all lines share one default object
    for name in ("cudagraph_capture_sizes", "max_cudagraph_capture_size"):
        if args.get(name) is not None:  # two places for one field; vLLM refuses both at once
            setattr(config, name, args[name])
        args.pop(name, None)
    args.pop("config", None)
    # Functions print their address; they are the same in every line.
    return {name: repr(value) for name, value in sorted(args.items()) if not callable(value)}


def main() -> None:
    parser = FlexibleArgumentParser(prog="vllm")
    commands = parser.add_subparsers(dest="subparser")
    for command in serve.cmd_init():
        command.subparser_init(commands)
    out = sys.stdout
    sys.stdout = sys.stderr  # vLLM logs there
    results = [parsed(parser, words) for words in json.load(sys.stdin)]
    out.write(json.dumps(results) + "\n")


main()
