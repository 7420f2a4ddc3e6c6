"""Broken input through the real commands: refused with exit code 2, at a place and with a remedy, all at once, before anything starts.

Usage: bad_input_test.py [test …]

Every case goes through `leeway check` and `leeway train`, which must say the same; afterwards no file, socket, shared memory or process is left.
"""

import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import leeway_run as lw  # noqa: E402

# Also the name of the run, and so part of all names that leeway would make.
NAME = "bad_input"
TASK = '[task]\nname = "sort5"\n'

# What it is, the file, where the error is (line:column), its key, and words of the message.
BROKEN = [
    ("no value", "seed = \n", "1:8", "", ["not TOML"]),
    ("text without an end", '[task]\nname = "sort5\n', "2:14", "", ["not TOML"]),
    ("a key twice", TASK + 'name = "add2"\n', "3:8", "", ["not TOML", "cannot redefine", "name"]),
    ("a section inside another", TASK + "trainer.steps = 8\n", "3:1", "task.trainer", ["unknown"]),
    ("text for an integer", 'seed = "one"\n' + TASK, "1:8", "seed", ["expected an integer >= 0", 'got the text "one"']),
    ("number for an integer", TASK + "[trainer]\nsteps = 8.5\n", "4:9", "trainer.steps", ["expected an integer >= 1", "8.5"]),
    ("integer for a boolean", TASK + "[model]\ntied_head = 1\n", "4:13", "model.tied_head", ["expected true or false", "the integer 1"]),
    ("number with a suffix", TASK + '[trainer]\nsteps = "8k"\n', "4:9", "trainer.steps", ["did you mean 8?"]),
    ("bytes with a wrong unit", TASK + '[queue]\nmax_bytes = "64MB"\n', "4:13", "queue.max_bytes", ['a text such as "256MiB"', "64MB"]),
    ("misspelt key", TASK + "[trainer]\nstepps = 8\n", "4:1", "trainer.stepps", ["unknown key", "did you mean trainer.steps?"]),
    ("misspelt section", TASK + "[traner]\nsteps = 8\n", "3:2", "traner", ["unknown section", "did you mean trainer?"]),
    ("too small", TASK + "[trainer]\nsteps = 0\n", "4:9", "trainer.steps", ["expected an integer >= 1, got 0"]),
    ("too large", TASK + "[eval]\ntop_p = 1.5\n", "4:9", "eval.top_p", ["<= 1, got 1.5"]),
    ("not a number", TASK + "[optimizer]\nlearning_rate = nan\n", "4:17", "optimizer.learning_rate", ["expected a number > 0, got nan"]),
    ("misspelt choice", 'mode = "asink"\n' + TASK, "1:8", "mode", ["expected one of async, sync", 'did you mean "async"?']),
    ("misspelt objective", TASK + '[objective]\nname = "ppo_klip"\n', "4:8", "objective.name", ["reinforce, ppo_clip", 'did you mean "ppo_clip"?']),
    ("no task", "seed = 1\n", "1:1", "task.name", ["missing"]),
    ("unknown task", '[task]\nname = "sort6"\n', "2:8", "task.name", ["sort6", "sort5"]),
    ("heads that do not divide the width", TASK + "[model]\nhidden = 64\nheads = 5\n", "5:9", "model.heads", ["64 is not divisible by model.heads = 5"]),
    ("heads of odd width", TASK + "[model]\nhead_dim = 15\n", "4:12", "model.head_dim", ["even"]),
    ("heads that can not share", TASK + "[model]\nkey_value_heads = 3\n", "4:19", "model.key_value_heads", ["divisor of model.heads = 4"]),
    ("sequences too short", TASK + "[model]\nmax_positions = 4\n", "4:17", "model.max_positions", ["expected at least"]),
    ("groups that never fit", TASK + "[queue]\nmax_groups = 15\n", "4:14", "queue.max_groups", ["wait for ever", "a batch is 16 groups"]),
    ("bytes that never fit", TASK + '[queue]\nmax_bytes = "64KiB"\n', "4:13", "queue.max_bytes", ["wait for ever", "65536"]),
    ("waiting out of order", TASK + '[staleness]\norder = "ready"\nbreach = "wait"\n', "5:10", "staleness.breach", ["needs order `ticket`"]),
    ("lag in turns", 'mode = "sync"\n' + TASK + "[staleness]\nbudget = 3\n", "5:10", "staleness.budget", ["no lag can occur"]),
    ("correction without its objective", TASK + '[objective]\nname = "ppo_clip"\ncorrection = "tis"\n', "5:14", "objective.correction", ["decoupled"]),
    ("more updates than groups", TASK + "[trainer]\nupdates_per_step = 17\n", "4:20", "trainer.updates_per_step", ["17 updates"]),
    ("groups of one", TASK + "[trainer]\ngroup_size = 1\n", "4:14", "trainer.group_size", ["nothing would be learnt"]),
    ("ranks that are no mesh", TASK + "[trainer]\nranks = 3\ntensor_parallel = 2\n", "4:9", "trainer.ranks", ["not a multiple of trainer.tensor_parallel = 2", "use 2 or 4"]),
    ("more ranks than heads", TASK + "[model]\nheads = 2\n[trainer]\nranks = 4\ntensor_parallel = 4\n", "7:19", "trainer.tensor_parallel", ["can not share model.heads = 2"]),
    ("latency of no form", TASK + 'latency = "20ms"\n', "3:11", "task.latency", ["lognormal(median=20ms"]),
    ("faults of no form", TASK + 'faults = "often"\n', "3:10", "task.faults", ["faults(fail=0.01, hang=0.001)"]),
    ("faults above one", TASK + 'faults = "faults(fail=0.7, hang=0.7)"\n', "3:10", "task.faults", ["1"]),
    ("questions that are not there", '[task]\nname = "question_file"\nfile = "absent.jsonl"\n', "3:8", "task.file", ["absent.jsonl"]),
    ("questions for another task", TASK + 'file = "absent.jsonl"\n', "3:8", "task.file", ["question_file"]),
    ("weights that are not there", TASK + '[model]\ninit = "absent"\n', "4:8", "model.init", ["no such folder"]),
    ("a run's name that is a path", 'run.name = "a/b"\n' + TASK, "1:12", "run.name", ["without '/'"]),
    ("a machine that is not this one", TASK + '[queue]\naddress = "example.org:80"\n', "4:11", "queue.address", ["example.org"]),
    ("one address for two", TASK + '[queue]\naddress = "unix:/tmp/a"\n[weights]\naddress = "unix:/tmp/a"\n', "6:11", "weights.address", ["the queue's"]),
]


def traces(folder):
    """Everything that a start would leave: files below the folder, sockets of runs with long names, shared memory of this run."""
    found = {str(path) for path in pathlib.Path(folder).rglob("*")}
    found |= {str(path) for path in pathlib.Path("/tmp").glob("leeway-*") if re.fullmatch("leeway-[0-9a-f]{16}", path.name)}
    found |= {str(path) for path in pathlib.Path("/dev/shm").glob(f"leeway-{NAME}*")}
    return found


def processes_below(folder):
    """Processes whose command line names the folder."""
    found = []
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if str(folder).encode() in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def refuse(folder, arguments, expected, what, commands=("check", "train")):
    """Runs the commands; each must print exactly the expected errors, (place, key, words) in order, and leave nothing. Returns the output."""
    overrides = [f"run.directory={folder}/runs"]
    before = traces(folder)
    outputs = []
    for command in commands:
        result = subprocess.run([lw.program(), command, *arguments, *overrides], capture_output=True, text=True, timeout=60, check=False, cwd=folder)
        where = f"{what}, leeway {command}"
        assert result.returncode == 2, f"{where}: exit code {result.returncode}\n{result.stdout}{result.stderr}"
        assert result.stdout == "", f"{where}: {result.stdout}"
        *errors, closing = result.stderr.splitlines()
        assert closing == f"{len(expected)} error{'s' if len(expected) != 1 else ''}; nothing was started", f"{where}: {result.stderr}"
        assert len(errors) == len(expected), f"{where}: expected {len(expected)} errors\n{result.stderr}"
        for line, (place, key, words) in zip(errors, expected):
            assert line.startswith(f"{place}: {key}: " if key else f"{place}: "), f"{where}: expected {place}: {key}\n{line}"
            for word in words:
                assert word in line.removeprefix(f"{place}: "), f"{where}: expected '{word}'\n{line}"
        outputs.append(result.stderr)
        assert traces(folder) == before, f"{where}: left {sorted(traces(folder) ^ before)}"
        assert not processes_below(folder), f"{where}: left processes {processes_below(folder)}"
    assert len(set(outputs)) == 1, f"{what}: the commands disagree\n{outputs}"
    return outputs[0]


def write(folder, text, name=f"{NAME}.toml"):
    path = pathlib.Path(folder) / name
    path.write_text(text)
    return str(path)


def each_says_where_and_what():
    """One broken file after the other."""
    with lw.Workspace("bad-input") as folder:
        for what, text, place, key, words in BROKEN:
            file = write(folder, text)
            refuse(folder, [file], [(f"{file}:{place}", key, words)], what)


def all_errors_at_once():
    """Errors of several files and overrides, of form and of meaning, in one answer."""
    with lw.Workspace("bad-input") as folder:
        base = write(folder, TASK + '[model]\nhidden = 64\nheads = 5\nlayres = 2\n[trainer]\nsteps = 0\ngroup_size = 1\n', "base.toml")
        file = write(folder, '[staleness]\norder = "ready"\nbreach = "wait"\n[eval]\nevery = "often"\n')
        refuse(folder, [base, file, "optimizer.beta1=1.5", "queue.max_groups=3"], [
            (f"{file}:3:10", "staleness.breach", ["needs order `ticket`"]),
            (f"{file}:5:9", "eval.every", ["expected an integer >= 0"]),
            (f"{base}:5:9", "model.heads", ["not divisible"]),
            (f"{base}:6:1", "model.layres", ["did you mean model.layers?"]),
            (f"{base}:8:9", "trainer.steps", [">= 1, got 0"]),
            (f"{base}:9:14", "trainer.group_size", ["nothing would be learnt"]),
            ("<argument 1>:1:17", "optimizer.beta1", ["<= 0.999999, got 1.5"]),
            ("<argument 2>:1:18", "queue.max_groups", ["a batch is 16 groups"]),
        ], "errors everywhere")


def files_and_overrides():
    """Files that are missing or no files, and overrides, whose place is their number among the overrides."""
    with lw.Workspace("bad-input") as folder:
        good = write(folder, TASK)
        absent = f"{folder}/absent.toml"
        refuse(folder, [absent], [(f"{absent}:1:1", "", ["no such file"])], "no file")
        refuse(folder, [good, absent], [(f"{absent}:1:1", "", ["no such file"])], "no second file")
        refuse(folder, [folder], [(f"{folder}:1:1", "", ["is a directory"])], "a folder")
        for override, column, key, words in [
            ("a.b=", 1, "a", ["unknown section"]),
            ("trainer.steps=", 15, "trainer.steps", ["expected an integer >= 1", 'got the text ""']),
            ("trainer.stepps=5", 9, "trainer.stepps", ["did you mean trainer.steps?"]),
            ("mode=asink", 6, "mode", ['did you mean "async"?']),
            ("=5", 1, "", ["expected section.key=value", '"=5"']),
            ("trainer=5", 1, "trainer", ["unknown"]),
        ]:
            refuse(folder, [good, "seed=2", override], [(f"<argument 2>:1:{column}", key, words)], override)


def questions():
    """A fault of a question file has that file's line number."""
    with lw.Workspace("bad-input") as folder:
        file = write(folder, '[task]\nname = "question_file"\nfile = "questions.jsonl"\n')
        good = ['{"question": "1+1", "answer": "2"}', '{"question": "1+2", "answer": "3"}']
        for number, (line, words) in enumerate([
            ('{"question": "1+3"}', ["'answer' is missing"]),
            ('{"question": "1+3", "answer": "4"', []),
            ("[1]", ["is array, expected an object"]),
            ('{"question": "1+1", "answer": "3"}', ["answers the question of line 1 differently"]),
            ('{"question": "1+3", "answer": "' + "4" * 40 + '"}', ["40 bytes", "task.max_answer_tokens is 32"]),
        ]):
            # At another line each time.
            path = write(folder, "\n".join([*good, *[""] * number, line]) + "\n", "questions.jsonl")
            refuse(folder, [file], [(f"{file}:3:8", "task.file", [f"{path}:{3 + number}:", *words])], line)
        write(folder, "\n\n", "questions.jsonl")
        refuse(folder, [file], [(f"{file}:3:8", "task.file", ["holds no question"])], "no questions")


def ranks_alone():
    """`leeway trainer` that is not one of so many ranks as the configuration says: what to start it with, and nothing is left."""
    with lw.Workspace("bad-input") as folder:
        file = write(folder, TASK)
        before = traces(folder)
        plain = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM_", "OMPI_", "PMI_", "TORCHELASTIC_")) and name not in ("RANK", "WORLD_SIZE")}
        for ranks, variables, words in [
            (4, {}, ["trainer.ranks = 4", "started alone", "`leeway train`", "torchrun, srun or mpirun"]),
            (4, {"RANK": "0", "WORLD_SIZE": "2"}, ["trainer.ranks = 4", "torchrun started 2 processes"]),
            (2, {"RANK": "2", "WORLD_SIZE": "2"}, ["RANK=2 is not below WORLD_SIZE=2"]),
            (2, {"RANK": "0"}, ["WORLD_SIZE is missing beside RANK=0"]),
        ]:
            result = subprocess.run([lw.program(), "trainer", file, f"trainer.ranks={ranks}", f"run.directory={folder}/runs"],
                                    env={**plain, **variables}, capture_output=True, text=True, timeout=60, check=False)
            assert result.returncode == 2, f"{variables}: exit code {result.returncode}\n{result.stdout}{result.stderr}"
            for word in words:
                assert word in result.stderr, f"{variables}: expected '{word}'\n{result.stderr}"
            assert traces(folder) == before, sorted(traces(folder) ^ before)


def busy_ports():
    """Ports that somebody listens on, named with the key that wants them."""
    with lw.Workspace("bad-input") as folder, socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port = listener.getsockname()[1]
        file = write(folder, TASK + f'[queue]\naddress = "127.0.0.1:{port}"\n[metrics]\nport = {port - 1}\n')
        refuse(folder, [file], [(f"{file}:4:11", "queue.address", [f"port {port} is busy"]),
                                (f"{file}:6:8", "metrics.port", [f"port {port} (metrics.port + 1) is busy"])], "busy ports")


def unfinished_run():
    """A run that exists is not touched by a configuration that does not fit it, nor by a second launcher."""
    with lw.Workspace("bad-input") as folder:
        directory = pathlib.Path(folder) / "runs" / NAME
        job = lw.Job("tiny.toml", f"{folder}/runs", NAME, ["trainer.steps=100000", "trajectories.every=0"])
        directory.parent.mkdir()
        job.start()
        job.wait_for(lambda job: job.steps_done() >= 3, 60, "step 3")
        second = subprocess.run(job.arguments, capture_output=True, text=True, timeout=60, check=False)
        assert second.returncode != 0 and f"in use by another leeway (pid {job.process.pid})" in second.stderr, second
        job.process.send_signal(signal.SIGTERM)
        job.process.wait(60)
        children = processes_below(folder)
        assert not children, children

        digests = {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.rglob("*") if path.is_file()}
        assert directory / "config.toml" in digests, digests
        base = str(lw.ROOT / "configs" / "tiny.toml")
        file = write(folder, "seed = 2\n[model]\nhidden = 32\n[staleness]\nbudget = 1\n")
        refuse(folder, [base, file], [
            (f"{file}:1:8", "seed", ["has 1, wanted is 2", "another run.name"]),
            (f"{file}:3:10", "model.hidden", ["has 16, wanted is 32", "another run.name"]),
            (f"{file}:3:10", "model.head_dim", ["has 8, wanted is 16"]),
            (f"{file}:3:10", "model.intermediate", ["has 48, wanted is 96"]),
            (f"{file}:5:10", "staleness.budget", ["has 2, wanted is 1", "may raise it"]),
        ], "another model")
        after = {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in directory.rglob("*") if path.is_file()}
        assert after == digests, sorted(str(path) for path in set(after.items()) ^ set(digests.items()))


def initial_weights():
    """A model.init that can not be loaded: known from its headers, before anything starts. The same directory, whole, does start."""
    with lw.Workspace("bad-input") as folder:
        trained = lw.Job("tiny.toml", folder, "trained", ["trainer.steps=1", "eval.every=0"]).run(timeout=60)
        checked = subprocess.run([lw.program(), "check", str(lw.ROOT / "configs" / "tiny.toml")], capture_output=True, text=True, timeout=60, check=True)
        shape = dict(re.findall(r"^(\w+) = ([\d.e+-]+)$", checked.stdout.split("[model]")[1].split("[rollout]")[0], re.MULTILINE))
        vocabulary = int(re.search(r"vocabulary (\d+)", checked.stdout).group(1))
        model = pathlib.Path(folder) / "model"
        model.mkdir()
        weights = model / "model.safetensors"
        shutil.copy(trained.checkpoint(1) / "weights.safetensors", weights)
        config = {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": vocabulary, "hidden_act": "silu", "torch_dtype": "float32",
                  "hidden_size": int(shape["hidden"]), "intermediate_size": int(shape["intermediate"]), "num_hidden_layers": int(shape["layers"]),
                  "num_attention_heads": int(shape["heads"]), "num_key_value_heads": int(shape["key_value_heads"]), "head_dim": int(shape["head_dim"]),
                  "max_position_embeddings": int(shape["max_positions"]), "rms_norm_eps": float(shape["rms_epsilon"]),
                  "rope_theta": float(shape["rope_theta"]), "tie_word_embeddings": True}
        (model / "config.json").write_text(json.dumps(config))
        whole = weights.read_bytes()
        shutil.rmtree(trained.directory)

        base = str(lw.ROOT / "configs" / "tiny.toml")
        file = write(folder, '[model]\ninit = "model"\n')
        header = int.from_bytes(whole[:8], "little")
        renamed = whole.replace(b'"model.norm.weight"', b'"model.norm.wieght"', 1)
        assert renamed != whole
        for what, content, words in [
            ("cut off", whole[:-100], []),
            ("a header only in part", whole[: 8 + header // 2], ["the file was cut off"]),
            ("a web page", b"<!DOCTYPE html><html>Log in</html>" + whole[:1000], ["an HTML page", "download again"]),
            ("a pointer", b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", ["`git lfs pull`"]),
            ("a misnamed tensor", renamed, ["missing: model.norm.weight", "unexpected: model.norm.wieght"]),
            ("empty", b"", ["0 bytes"]),
        ]:
            weights.write_bytes(content)
            refuse(folder, [base, file], [(f"{file}:2:8", "model.init", [str(weights), "leave model.init empty", *words])], what)
        weights.unlink()
        refuse(folder, [base, file], [(f"{file}:2:8", "model.init", [str(model), "neither model.safetensors nor"])], "no weights")
        (model / "config.json").unlink()
        refuse(folder, [base, file], [(f"{file}:2:8", "model.init", ["config.json"])], "no configuration of the model")

        weights.write_bytes(whole)
        (model / "config.json").write_text(json.dumps(config))
        started = lw.Job("tiny.toml", folder, "started", [f"model.init={model}", "trainer.steps=1", "eval.every=0"]).run(timeout=60)
        lw.check_conservation(started.metrics())


def damaged_checkpoint():
    """`leeway eval` of a checkpoint with a damaged byte names the run's own file and the checkpoints that are left, and starts nothing."""
    with lw.Workspace("bad-input") as folder:
        job = lw.Job("tiny.toml", folder, "run", ["trainer.steps=4", "checkpoint.every=2", "eval.every=0"]).run(timeout=60)
        weights = job.checkpoint(4) / "weights.safetensors"
        content = bytearray(weights.read_bytes())
        content[-1] ^= 1
        weights.write_bytes(content)
        result = subprocess.run([lw.program(), "eval", str(job.directory)], capture_output=True, text=True, timeout=60, check=False)
        assert (result.returncode, result.stdout) == (6, ""), result
        for word in (str(job.checkpoint(4)), "weights.safetensors", "--step: 2"):
            assert word in result.stderr, result.stderr
        assert len(result.stderr.splitlines()) == 1 and "leeway-eval-" not in result.stderr, result.stderr
        other = subprocess.run([lw.program(), "eval", str(job.directory), "--step", "2"], capture_output=True, text=True, timeout=60, check=False)
        assert other.returncode == 0 and "step 2 of" in other.stdout, other


lw.main({
    "each_says_where_and_what": each_says_where_and_what,
    "all_errors_at_once": all_errors_at_once,
    "files_and_overrides": files_and_overrides,
    "questions": questions,
    "ranks_alone": ranks_alone,
    "busy_ports": busy_ports,
    "unfinished_run": unfinished_run,
    "initial_weights": initial_weights,
    "damaged_checkpoint": damaged_checkpoint,
})
