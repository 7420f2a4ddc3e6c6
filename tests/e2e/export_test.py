#!/usr/bin/env python3
"""Hugging Face directories through the real commands: `leeway export` gives a checkpoint's own bytes, whole or not at all, and what it gives starts another run
(`model.init`), in all three families. Whether transformers reads them is tests/parity/hugging_face_test.py's business.

    export_test.py [TEST…]
"""

import json
import pathlib
import re
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import leeway_run as lw  # noqa: E402

FILES = ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
ARCHITECTURES = {"llama": "LlamaForCausalLM", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM"}
FAMILIES = {"llama": [], "qwen2": ["model.tied_head=false"], "qwen3": ["model.head_dim=10", "model.key_value_heads=1"]}


def export(*words):
    return subprocess.run([lw.program(), "export", *map(str, words)], capture_output=True, text=True, timeout=60, check=False)


def tensors(path):
    """Name -> (shape, bytes) of a safetensors file."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    header = json.loads(content[8 : 8 + length])
    data = content[8 + length :]
    return {
        name: (tuple(entry["shape"]), data[slice(*entry["data_offsets"])])
        for name, entry in header.items() if name != "__metadata__"
    }


def names_in(folder):
    return sorted(path.name for path in pathlib.Path(folder).iterdir())


def families():
    """The checkpoint's tensors, byte for byte; the directory alone starts another run, which begins with those weights."""
    with lw.Workspace("export") as folder:
        for family, keys in FAMILIES.items():
            job = lw.Job("tiny.toml", folder, family, [f"model.family={family}", *keys, "trainer.steps=2", "eval.every=0"]).run(timeout=60)
            to = pathlib.Path(folder) / f"{family}-files"
            result = export(job.directory, "--to", to)
            assert result.returncode == 0 and f"step 2 of {job.directory}" in result.stdout, result
            assert names_in(to) == FILES, names_in(to)
            assert tensors(to / "model.safetensors") == tensors(job.checkpoint(2) / "weights.safetensors"), family
            config = json.loads((to / "config.json").read_text())
            assert config["architectures"] == [ARCHITECTURES[family]], config
            assert json.loads((to / "generation_config.json").read_text()) == {"bos_token_id": 1, "eos_token_id": 0, "pad_token_id": 0}
            # A step with a learning rate of next to nothing leaves the weights where they were.
            tiny_step = ["optimizer.learning_rate=1e-30", "trainer.steps=1", "eval.every=0"]
            # None of the model's keys but where it lies.
            config = pathlib.Path(folder) / f"{family}.toml"
            config.write_text(f'[task]\nname = "sort5"\n[model]\ninit = "{to.name}"\n[trainer]\ngroups_per_step = 2\ngroup_size = 2\n')
            again = lw.Job(config, folder, f"{family}-again", tiny_step).run(timeout=60)
            lw.check_conservation(again.metrics())
            assert tensors(again.checkpoint(1) / "weights.safetensors") == tensors(to / "model.safetensors"), family


def assembled(checkpoint):
    """Name -> (shape, bytes) of the weights in a checkpoint's files, put together by what their metadata says."""
    whole, filled = {}, {}
    for path in sorted(checkpoint.glob("weights*.safetensors")):
        content = path.read_bytes()
        length = int.from_bytes(content[:8], "little")
        header = json.loads(content[8:8 + length])
        metadata = header.pop("__metadata__", {})
        for name, entry in header.items():
            values = content[8 + length + entry["data_offsets"][0]:8 + length + entry["data_offsets"][1]]
            piece, shape = re.fullmatch(r"\[(.*)\] of \[(.*)\]", metadata.get(name, f"[{', '.join(f'0:{n}' for n in entry['shape'])}] of {entry['shape']}")).groups()
            shape = [int(n) for n in shape.split(", ")]
            ranges = [tuple(map(int, each.split(":"))) for each in piece.split(", ")]
            (top, bottom), (left, right) = ranges if len(ranges) == 2 else (ranges[0], (0, 1))
            width = shape[1] if len(shape) == 2 else 1
            to = whole.setdefault(name, (shape, bytearray(4 * shape[0] * width)))[1]
            for row in range(top, bottom):
                run = values[4 * (row - top) * (right - left):4 * (row - top + 1) * (right - left)]
                to[4 * (row * width + left):4 * (row * width + right)] = run
            filled[name] = filled.get(name, 0) + (bottom - top) * (right - left)
    for name, (shape, values) in whole.items():
        assert 4 * filled[name] == len(values), (name, filled[name], shape)
    return {name: (tuple(shape), bytes(values)) for name, (shape, values) in whole.items()}


def ranks():
    """What four ranks wrote in pieces is exported whole, and is what one rank goes on from."""
    with lw.Workspace("export-ranks") as folder:
        common = ["trainer.steps=2", "checkpoint.every=1", "eval.every=0"]
        job = lw.Job("tiny.toml", folder, "run", [*common, "trainer.ranks=4", "trainer.tensor_parallel=2", "trainer.zero_stage=3"]).run(timeout=60)
        assert len(list(job.checkpoint(2).glob("weights-*-of-00004.safetensors"))) == 4, sorted(job.checkpoint(2).iterdir())
        to = pathlib.Path(folder) / "exported"
        assert export(job.directory, "--to", to).returncode == 0
        assert tensors(to / "model.safetensors") == assembled(job.checkpoint(2))


def places():
    """Nothing is overwritten, nothing half-written stays; --step names a checkpoint."""
    with lw.Workspace("export") as folder:
        job = lw.Job("tiny.toml", folder, "run", ["trainer.steps=4", "checkpoint.every=2", "eval.every=0"]).run(timeout=60)
        parent = pathlib.Path(folder) / "exports"
        taken = parent / "taken"
        taken.mkdir(parents=True)
        (taken / "mine").write_text("text")
        for words, code, said in [
            ((job.directory, "--to", taken), 2, [str(taken), "not empty"]),
            ((job.directory, "--to", taken / "mine"), 2, ["is no folder"]),
            ((job.directory, "--to", parent / "new", "--step", 3), 3, ["no checkpoint of step 3", "2, 4"]),
            ((parent / "absent", "--to", parent / "new"), 3, ["holds no run"]),
            ((job.directory,), 2, ["--to"]),
        ]:
            result = export(*words)
            assert result.returncode == code and all(word in result.stderr for word in said), (words, result)
        assert names_in(parent) == ["taken"] and names_in(taken) == ["mine"]
        (parent / "empty").mkdir()
        (parent / ".empty.unfinished").mkdir()  # of an export that was killed
        (parent / ".empty.unfinished" / "model.safetensors").write_text("half")
        assert export(job.directory, "--to", parent / "empty", "--step", 2).returncode == 0
        assert names_in(parent) == ["empty", "taken"] and names_in(parent / "empty") == FILES
        assert tensors(parent / "empty" / "model.safetensors") == tensors(job.checkpoint(2) / "weights.safetensors")


def damaged_checkpoints():
    """A damaged checkpoint is named; without --step the newest whole one is taken."""
    with lw.Workspace("export") as folder:
        job = lw.Job("tiny.toml", folder, "run", ["trainer.steps=4", "checkpoint.every=2", "eval.every=0"]).run(timeout=60)
        to = pathlib.Path(folder) / "files"

        def damage(step):
            weights = job.checkpoint(step) / "weights.safetensors"
            content = bytearray(weights.read_bytes())
            content[-1] ^= 1
            weights.write_bytes(content)

        damage(4)
        named = export(job.directory, "--to", to, "--step", 4)
        assert named.returncode == 6 and str(job.checkpoint(4)) in named.stderr and "weights.safetensors" in named.stderr, named
        assert not to.exists()
        newest = export(job.directory, "--to", to)
        assert newest.returncode == 0 and "step 2 of" in newest.stdout, newest
        assert str(job.checkpoint(4)) in newest.stderr and "taking step 2 instead" in newest.stderr, newest
        damage(2)
        none = export(job.directory, "--to", pathlib.Path(folder) / "other")
        assert none.returncode == 6 and all(str(job.checkpoint(step)) in none.stderr for step in (2, 4)), none
        assert "other" not in names_in(folder)


lw.main({"families": families, "places": places, "ranks": ranks, "damaged_checkpoints": damaged_checkpoints})
