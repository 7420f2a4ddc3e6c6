#!/usr/bin/env python3
"""A train step of leeway beside a Hugging Face loop and TRL's GRPOTrainer, in turns on this machine.

    python3 benchmarks/trainer_peers.py --directory DIR [--benchmark build/release/benchmarks/trainer_benchmark]
                                        [--shape smollm2-135m,15m] [--threads 2] [--sequences 8] [--prompt 32]
                                        [--response 224] [--turns 3] [--steps 2] [--peers loop,trl]
                                        [--micro-batch-tokens 512] [--allocator jemalloc|glibc] [--checkpointing]

DIR (several GB, not removed) gets the peers' virtual environment, made with pip on the first call, and the figures:
trainer_peers.json and trainer_peers.svg.

All train a Llama of the same shape with random weights, in fp32, on as many sequences of --prompt + --response ids, with
PPO's clipped loss over the response's log-probabilities, the norm of the gradients clipped to 1, and AdamW (the peers:
torch's fused one). Systems take turns; a turn is a process of its own, whose first step does not count.

  leeway   trainer_benchmark: the product's Learner, in micro-batches of --micro-batch-tokens
  loop     AutoModelForCausalLM, logits for the response only, loss.backward(), clip_grad_norm_, AdamW.step()
  trl      GRPOTrainer, beta = 0, its own forward pass and loss; generation is forced to --response ids and does not
           count: its training part is the step minus _generate_and_score_completions. Activations are kept as in the
           others unless --checkpointing asks for TRL's default, which computes them twice and needs less memory

Tokens/s count all ids of the sequences in a step's median seconds. The share of the machine's peak is that of
6 x parameters x tokens and of the measured rate of fused multiply-adds. Peak memory is the largest resident set of the
process from the first step on (VmHWM), TRL's with generating. All use the same allocator with the same settings:
jemalloc as leeway sets it up, or for the peers glibc's with its thresholds raised and huge pages.
Exit code 1: a target is missed; 3: something is missing.
"""

import argparse
import ctypes
import ctypes.util
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

PACKAGES = ["torch==2.11.0", "transformers==5.24.0", "trl==1.16.0", "accelerate==1.15.0", "datasets==5.2.0"]
SHAPES = {
    "smollm2-135m": dict(vocab_size=49152, hidden_size=576, num_hidden_layers=30, num_attention_heads=9,
                         num_key_value_heads=3, head_dim=64, intermediate_size=1536, max_position_embeddings=8192,
                         rope_theta=100000.0),
    "15m": dict(vocab_size=32000, hidden_size=288, num_hidden_layers=6, num_attention_heads=6, num_key_value_heads=6,
                head_dim=48, intermediate_size=768, max_position_embeddings=2048, rope_theta=10000.0),
}
SHAPES["8m"] = dict(SHAPES["15m"], vocab_size=8192)
# How many times the peer's tokens/s; and the largest share of its peak memory.
SPEED_TARGETS = {"smollm2-135m": {"loop": 1.1, "trl": 1.2}, "15m": {"loop": 1.2, "trl": 1.2}, "8m": {"loop": 1.2, "trl": 1.2}}
MEMORY_TARGET = 0.5
# As base/allocator.cc.
JEMALLOC = ("dirty_decay_ms:-1,muzzy_decay_ms:-1,oversize_threshold:0,lg_extent_max_active_fit:40,thp:always,"
            "metadata_thp:auto")
GLIBC = ("glibc.malloc.hugetlb=1:glibc.malloc.mmap_threshold=33554432:glibc.malloc.trim_threshold=1073741824:"
         "glibc.malloc.top_pad=16777216")


# ---- inside the peers' environment -----------------------------------------------------------------------------------


def forget_peak_memory():
    """What making the model took is given back and does not count."""
    gc.collect()
    try:
        ctypes.CDLL(None).mallctl(b"arena.4096.purge", None, None, None, 0)
    except AttributeError:  # not jemalloc
        ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/clear_refs", "w") as out:
        out.write("5")


def peak_memory():
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmHWM:"))


def make_model(case):
    import torch
    from transformers import AutoModelForCausalLM, LlamaConfig

    torch.set_num_threads(case["threads"])
    torch.manual_seed(1)
    shape = dict(SHAPES[case["shape"]])
    theta = shape.pop("rope_theta")
    config = LlamaConfig(**shape, tie_word_embeddings=True, rms_norm_eps=1e-5, bos_token_id=0, eos_token_id=1,
                         pad_token_id=2, rope_parameters={"rope_type": "default", "rope_theta": theta})
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="sdpa")
    return model


def run_loop(case):
    """Seconds of each step: whole, forward with loss, backward, the rest."""
    import torch

    model = make_model(case)
    model.train()
    sequences, response = case["sequences"], case["response"]
    ids = torch.randint(3, SHAPES[case["shape"]]["vocab_size"], (sequences, case["prompt"] + response))
    targets = ids[:, -response:].unsqueeze(-1)
    advantages = torch.tensor([1.0 if s % 2 else -1.0 for s in range(sequences)]).unsqueeze(-1)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, weight_decay=0.0, fused=True)
    recorded = None
    steps = []
    forget_peak_memory()
    for _ in range(case["steps"] + 1):
        begin = time.monotonic()
        logits = model(ids, use_cache=False, logits_to_keep=response + 1).logits[:, :-1]
        logprobs = logits.gather(-1, targets).squeeze(-1) - logits.logsumexp(-1)
        ratio = torch.exp(logprobs - (logprobs.detach() if recorded is None else recorded))
        loss = -torch.min(ratio * advantages, ratio.clamp(0.8, 1.28) * advantages).mean()
        recorded = logprobs.detach()
        del logits
        forward = time.monotonic()
        loss.backward()
        backward = time.monotonic()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        end = time.monotonic()
        steps.append((end - begin, forward - begin, backward - forward, end - backward))
    return {"steps": steps[1:], "parts": ["forward + loss", "backward", "clip + optimizer"]}


def make_tokenizer(vocabulary):
    """One word an id."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {"<bos>": 0, "<eos>": 1, "<pad>": 2, **{f"w{i}": i for i in range(3, vocabulary)}}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<bos>", eos_token="<eos>", pad_token="<pad>",
                                   padding_side="left")


def run_trl(case):
    """Seconds of each step: whole without generation, forward with loss, backward and the rest, generation."""
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import GRPOConfig, GRPOTrainer

    model = make_model(case)
    vocabulary = SHAPES[case["shape"]]["vocab_size"]
    sequences, prompt, response = case["sequences"], case["prompt"], case["response"]
    seconds = {"generate": [], "loss": [], "step": []}
    lengths = []

    class Times(TrainerCallback):
        def on_step_begin(self, arguments, state, control, **kwargs):
            self.begin = time.monotonic()

        def on_step_end(self, arguments, state, control, **kwargs):
            seconds["step"].append(time.monotonic() - self.begin)

    class TimedTrainer(GRPOTrainer):
        def _generate_and_score_completions(self, inputs):
            begin = time.monotonic()
            outputs = super()._generate_and_score_completions(inputs)
            seconds["generate"].append(time.monotonic() - begin)
            lengths.append((tuple(outputs["prompt_ids"].shape), tuple(outputs["completion_ids"].shape),
                            int(outputs["completion_mask"].sum())))
            return outputs

        def compute_loss(self, *arguments, **kwargs):
            begin = time.monotonic()
            loss = super().compute_loss(*arguments, **kwargs)
            seconds["loss"].append(time.monotonic() - begin)
            return loss

    def reward(completions, **kwargs):
        return [float(i % 2) for i in range(len(completions))]

    words = " ".join(f"w{3 + (7919 * i) % (vocabulary - 3)}" for i in range(prompt))
    with tempfile.TemporaryDirectory() as folder:
        config = GRPOConfig(output_dir=folder, use_cpu=True, bf16=False, fp16=False, beta=0.0, learning_rate=1e-6,
                            per_device_train_batch_size=sequences, num_generations=sequences,
                            gradient_accumulation_steps=1, max_steps=case["steps"] + 1, max_completion_length=response,
                            generation_kwargs={"min_new_tokens": response}, gradient_checkpointing=case["checkpointing"],
                            logging_steps=1, report_to=[], save_strategy="no", disable_tqdm=True)
        trainer = TimedTrainer(model=model, reward_funcs=reward, args=config,
                               train_dataset=Dataset.from_dict({"prompt": [words] * (4 * sequences)}),
                               processing_class=make_tokenizer(vocabulary), callbacks=[Times()])
        forget_peak_memory()
        trainer.train()
    expected = ((sequences, prompt), (sequences, response), sequences * response)
    if any(length != expected for length in lengths) or len(seconds["step"]) != len(seconds["generate"]):
        raise RuntimeError(f"TRL trained on {lengths}, expected {expected} in each of {len(seconds['step'])} steps")
    steps = [(step - generate, loss, step - generate - loss, generate)
             for step, generate, loss in zip(seconds["step"], seconds["generate"], seconds["loss"])]
    return {"steps": steps[1:], "parts": ["forward + loss", "backward and the rest", "generation (not counted)"]}


# ---- outside ---------------------------------------------------------------------------------------------------------


def environment_in(directory):
    """The Python of the peers' environment, made if it is missing."""
    path = os.path.join(directory, "hugging_face")
    python = os.path.join(path, "bin", "python")
    done = os.path.join(path, ".installed")
    if not os.path.exists(done):
        print(f"installing {', '.join(PACKAGES)} below {path} (large downloads)", flush=True)
        subprocess.run([sys.executable, "-m", "venv", path], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *PACKAGES], check=True)
        open(done, "w").close()
    return python


def allocator_of(arguments):
    """What it adds to a peer's environment."""
    if arguments.allocator == "glibc":
        return {"GLIBC_TUNABLES": GLIBC}
    library = ctypes.util.find_library("jemalloc")
    if library is None:
        print("no jemalloc: install libjemalloc2, or take --allocator glibc", file=sys.stderr)
        sys.exit(3)
    return {"LD_PRELOAD": library, "MALLOC_CONF": JEMALLOC}


def run_peer(peer, shape, arguments):
    case = {"peer": peer, "shape": shape, "threads": arguments.threads, "sequences": arguments.sequences,
            "prompt": arguments.prompt, "response": arguments.response, "steps": arguments.steps,
            "checkpointing": arguments.checkpointing}
    threads = str(arguments.threads)
    environment = dict(os.environ, OMP_NUM_THREADS=threads, MKL_NUM_THREADS=threads, TOKENIZERS_PARALLELISM="false",
                       HF_HUB_OFFLINE="1", TRANSFORMERS_VERBOSITY="error", CUDA_VISIBLE_DEVICES="",
                       **allocator_of(arguments))
    result = subprocess.run([environment_in(arguments.directory), os.path.abspath(__file__), "--run", json.dumps(case)],
                            env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=3600)
    lines = [line for line in result.stdout.splitlines() if line.startswith("FIGURES ")]
    if not lines:
        print(result.stderr[-4000:], file=sys.stderr)
        sys.exit(f"{peer} gave no figures")
    figures = json.loads(lines[0][len("FIGURES "):])
    parts = {name: statistics.median(step[i + 1] for step in figures["steps"]) for i, name in enumerate(figures["parts"])}
    return {"seconds": [step[0] for step in figures["steps"]], "memory": figures["memory"], "parts": parts}


def run_ours(shape, arguments):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "figures")
        subprocess.run([arguments.benchmark, "--shape", shape, "--threads", str(arguments.threads), "--sequences",
                        str(arguments.sequences), "--prompt", str(arguments.prompt), "--response", str(arguments.response),
                        "--micro-batch-tokens", str(arguments.micro_batch_tokens), "--steps", str(arguments.steps),
                        "--json", path], check=True, stdout=subprocess.DEVNULL)
        with open(path) as figures:
            result = json.load(figures)
    return {"seconds": result["seconds"], "memory": result["peak_memory_bytes"], "peak_flops": result["peak_flops"],
            "parameters": result["parameters"], "model_flops": result["model_flops"], "parts": {}}


def summary_of(turns, tokens):
    """Of one system: tokens/s of each turn's median step, memory in bytes."""
    rates = sorted(tokens / statistics.median(turn["seconds"]) for turn in turns)
    parts = {name: statistics.median(turn["parts"][name] for turn in turns) for name in turns[0]["parts"]}
    return {"rate": statistics.median(rates), "lowest": rates[0], "highest": rates[-1],
            "memory": statistics.median(turn["memory"] for turn in turns), "parts": parts}


def measure(shape, arguments):
    """Prints the table of a shape; returns its figures and the number of targets that were missed."""
    systems = ["leeway"] + arguments.peers.split(",")
    turns = {system: [] for system in systems}
    for _ in range(arguments.turns):
        for system in systems:
            turns[system].append(run_ours(shape, arguments) if system == "leeway" else run_peer(system, shape, arguments))
    tokens = arguments.sequences * (arguments.prompt + arguments.response)
    figures = {system: summary_of(turns[system], tokens) for system in systems}
    # The fastest of all turns, for the machine may have been busy in one.
    peak = max(turn["peak_flops"] for turn in turns["leeway"])
    simple = 6 * turns["leeway"][0]["parameters"]
    ours = figures["leeway"]
    missed = 0
    print(f"{shape}, {arguments.sequences} x ({arguments.prompt} + {arguments.response}) tokens, {arguments.threads} threads, "
          f"fp32, {arguments.allocator}; peak {peak / 1e9:.0f} GFLOP/s")
    for system in systems:
        one = figures[system]
        one["share"] = simple * one["rate"] / peak
        line = (f"  {system:7} {one['rate']:8.1f} tokens/s [{one['lowest']:.1f}-{one['highest']:.1f}]  {100 * one['share']:5.1f} % "
                f"of the peak (6PT)  {one['memory'] / 1e9:5.2f} GB")
        if system == "leeway":
            model = turns["leeway"][0]["model_flops"] * one["rate"] / tokens / peak
            line += f"  {100 * model:.1f} % by model FLOPs (causal)"
        else:
            speed = ours["rate"] / one["rate"]
            memory = ours["memory"] / one["memory"]
            target = SPEED_TARGETS[shape][system]
            missed += (speed < target) + (memory > MEMORY_TARGET)
            line += (f"  leeway is {speed:.2f} x as fast ({'met' if speed >= target else 'MISSED'}: {target}) "
                     f"in {memory:.2f} of the memory ({'met' if memory <= MEMORY_TARGET else 'MISSED'}: {MEMORY_TARGET})")
        print(line)
        if one["parts"]:
            print("          " + ", ".join(f"{name} {seconds:.2f} s" for name, seconds in one["parts"].items()))
    sys.stdout.flush()
    return figures, missed


def plot(results, path):
    """Two rows of bars a shape, tokens/s and peak memory, each as a share of its longest."""
    colours = {"leeway": "#1f77b4", "loop": "#ff7f0e", "trl": "#2ca02c"}
    lines = []
    y = 10
    for shape, figures in results.items():
        for field, unit, scale, digits in (("rate", "tokens/s", 1, 0), ("memory", "GB peak memory", 1e9, 2)):
            y += 24
            lines.append(f'<text x="10" y="{y}" font-weight="bold">{shape}: {unit}</text>')
            longest = max(one[field] for one in figures.values())
            for system, one in figures.items():
                width = 360 * one[field] / longest
                lines.append(f'<text x="10" y="{y + 20}">{system}</text>')
                lines.append(f'<rect x="70" y="{y + 8}" width="{width:.1f}" height="15" fill="{colours[system]}"/>')
                lines.append(f'<text x="{76 + width:.1f}" y="{y + 20}">{one[field] / scale:.{digits}f}</text>')
                y += 20
    with open(path, "w") as out:
        out.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="520" height="{y + 20}" font-family="sans-serif" '
                  f'font-size="13"><rect width="100%" height="100%" fill="white"/>\n' + "\n".join(lines) + "\n</svg>\n")


def main():
    if sys.argv[1:2] == ["--run"]:
        case = json.loads(sys.argv[2])
        figures = {"loop": run_loop, "trl": run_trl}[case["peer"]](case)
        print("FIGURES " + json.dumps(dict(figures, memory=peak_memory())), flush=True)
        return 0
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", required=True)
    parser.add_argument("--benchmark", default="build/release/benchmarks/trainer_benchmark")
    parser.add_argument("--shape", default="smollm2-135m,15m")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--sequences", type=int, default=8)
    parser.add_argument("--prompt", type=int, default=32)
    parser.add_argument("--response", type=int, default=224)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--steps", type=int, default=2, help="of a turn, that count")
    parser.add_argument("--peers", default="loop,trl")
    parser.add_argument("--micro-batch-tokens", type=int, default=512, help="leeway's")
    parser.add_argument("--allocator", choices=["jemalloc", "glibc"], default="jemalloc", help="of the peers")
    parser.add_argument("--checkpointing", action="store_true", help="TRL computes activations twice")
    arguments = parser.parse_args()
    if not os.access(arguments.benchmark, os.X_OK):
        print(f"no {arguments.benchmark}: build it with ./run bench trainer_benchmark, or name it with --benchmark", file=sys.stderr)
        return 3
    arguments.directory = os.path.abspath(arguments.directory)
    results = {}
    missed = 0
    for shape in arguments.shape.split(","):
        results[shape], misses = measure(shape, arguments)
        missed += misses
    with open(os.path.join(arguments.directory, "trainer_peers.json"), "w") as out:
        json.dump(results, out, indent=1)
    plot(results, os.path.join(arguments.directory, "trainer_peers.svg"))
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
