"""Jobs whose weights are bf16: what the workers recorded is what the trainer computes again, to the bit, on one rank and on several; published
weights have half the bytes; it learns; a resume goes on from the 32-bit masters; frozen parameters stay what they were.

Usage: precision_test.py [test …]
"""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import leeway_run as lw  # noqa: E402

BF16 = ["model.dtype=bfloat16"]


def weights(checkpoint):
    """Bytes of each parameter of a checkpoint of one rank."""
    tensors = {}
    for path in sorted(checkpoint.glob("weights*.safetensors")):
        content = path.read_bytes()
        length = int.from_bytes(content[:8], "little")
        for name, tensor in json.loads(content[8:8 + length]).items():
            if name != "__metadata__":
                begin, end = tensor["data_offsets"]
                tensors[name] = content[8 + length + begin:8 + length + end]
    return tensors


def check_lag_zero(lines):
    trained = [line for line in lines if line["step"] >= 1]
    assert trained, "no step was trained"
    for line in trained:
        assert line["mismatch/ratio_max"] == 1, f"step {line['step']}: ratio {line['mismatch/ratio_max']}"
        assert line["mismatch/ess"] == 1, f"step {line['step']}: ess {line['mismatch/ess']}"
    lw.check_conservation(lines)
    return trained


def ratios_are_one():
    """S = 0, on 1 rank and on 2x2 in every way to keep the state: every ratio is exactly 1, and a version has half the bytes."""
    layouts = {
        "float32": [],
        "one": [*BF16],
        "one-bf16-gradients": [*BF16, "trainer.gradient_dtype=bfloat16"],
        "four": [*BF16, "trainer.ranks=4", "trainer.tensor_parallel=2"],
        "four-sharded": [*BF16, "trainer.ranks=4", "trainer.tensor_parallel=2", "trainer.sequence_parallel=true", "trainer.zero_stage=3",
                         "trainer.gradient_dtype=bfloat16"],
        "two-once": [*BF16, "trainer.ranks=2", "trainer.zero_stage=3", "trainer.reduce_once=true"],
    }
    with lw.Workspace("precision") as folder:
        bytes_of = {}
        for name, layout in layouts.items():
            job = lw.Job("tiny.toml", folder, name, ["trainer.steps=20", "mode=async", "staleness.budget=0", *layout]).run()
            bytes_of[name] = check_lag_zero(job.metrics())[-1]["weights/bytes"]
        assert all(count * 2 == bytes_of["float32"] for name, count in bytes_of.items() if name != "float32"), bytes_of


def learns():
    """150 steps of sort5 with everything in bf16 that can be: reward rises well above chance."""
    with lw.Workspace("precision-learns") as folder:
        job = lw.Job("sort5.toml", folder, "learns", [*BF16, "trainer.gradient_dtype=bfloat16", "trainer.steps=150", "optimizer.schedule=constant",
                                                      "eval.every=0"]).run(timeout=400)
        rewards = [line["reward/mean"] for line in job.metrics() if line["step"] >= 1]
        first, last = sum(rewards[:5]) / 5, sum(rewards[-5:]) / 5
        assert first < 0.06, f"reward starts at {first:.3f}: chance is about 0.02"
        assert last > first + 0.2, f"reward went from {first:.3f} to {last:.3f} in 150 steps"


def resumes():
    """What was stopped and resumed ends with the bytes of what was not: checkpoints hold the masters, not the rounded weights."""
    with lw.Workspace("precision-resumes") as folder:
        common = [*BF16, "mode=async", "staleness.budget=0", "checkpoint.every=10", "optimizer.schedule=constant"]
        whole = lw.Job("tiny.toml", folder, "whole", [*common, "trainer.steps=20"]).run()
        first = lw.Job("tiny.toml", folder, "parts", [*common, "trainer.steps=10"]).run()
        parts = lw.Job("tiny.toml", folder, "parts", [*common, "trainer.steps=20"]).run()
        assert first.directory == parts.directory
        check_lag_zero(parts.metrics())
        assert lw.checkpoint_digests(whole.checkpoint(20)) == lw.checkpoint_digests(parts.checkpoint(20)), "the resumed run ended with other bytes"


def frozen_stays():
    """Parameters named in trainer.frozen end as they began, the others do not; a wrong name is refused with its key."""
    with lw.Workspace("precision-frozen") as folder:
        common = ["trainer.steps=6", "mode=async", "staleness.budget=0", "checkpoint.every=3"]
        frozen = lw.Job("tiny.toml", folder, "frozen", [*BF16, *common, "trainer.frozen=model.layers.0.*, model.embed_tokens.weight"]).run()
        check_lag_zero(frozen.metrics())
        early, late = (weights(frozen.checkpoint(step)) for step in (3, 6))
        assert early.keys() == late.keys() and "model.embed_tokens.weight" in early
        for name, values in early.items():
            is_frozen = name.startswith(("model.layers.0.", "model.embed_tokens.weight"))
            assert (values == late[name]) == is_frozen, f"{name}: frozen {is_frozen}, unchanged {values == late[name]}"
        wrong = lw.Job("tiny.toml", folder, "wrong", [*common, "trainer.frozen=model.layers.9.*"])
        wrong.run(expect=2)
        for text in ("trainer.frozen", "model.layers.9.*", "model.embed_tokens.weight"):
            assert text in wrong.output(), wrong.output()


lw.main({"ratios_are_one": ratios_are_one, "learns": learns, "resumes": resumes, "frozen_stays": frozen_stays})
