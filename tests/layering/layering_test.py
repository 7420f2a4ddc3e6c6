"""The house rules that a machine can check: dependency order of folders, forbidden headers, sizes, comments, tests.

Usage: layering_test.py SOURCE_ROOT      prints every breach, exits 1 if there is one.
"""

import os
import re
import statistics
import subprocess
import sys

# Folder -> layer. An include may only go to a lower layer, or stay inside its folder.
LAYERS = {
    "base": 0, "proto": 0, "formats": 0,
    "rpc": 1, "collective": 1, "tokenizer": 1, "envs": 1,
    "queue": 2, "weightsync": 2, "model": 2, "gateway": 2,
    "rollout": 3, "trainer": 3,
    "launch": 4,
    "lab": 5,
    "tests": 6, "benchmarks": 6, "examples": 6,
}
# Same layer, but allowed: (from, to).
SAME_LAYER = {("envs", "tokenizer"), ("formats", "base"), ("tests", "examples")}

TORCH = re.compile(r"^(torch|ATen|c10|caffe2)/")
GRPC = re.compile(r"^grpc|\.grpc\.pb\.h$")
CUDA = re.compile(r"^(cuda|nccl)")
TORCH_FREE = {"base", "proto", "formats", "collective", "tokenizer", "rpc", "envs", "queue", "weightsync", "gateway", "launch", "model", "rollout", "trainer"}
HEAVY_TORCH = {"torch/torch.h", "torch/all.h", "torch/nn.h", "torch/script.h", "ATen/ATen.h"}
CUDA_FOLDERS = ("collective/nccl/", "weightsync/transport/nccl/", "model/cuda/")

MAX_FILE_LINES = 800
WARN_FILE_LINES = 500
MAX_MEDIAN_LINES = 120
MAX_FOLDER_FILES = 25
MIN_TEST_RATIO = 0.6
MAX_README_LINES = 40
FORBIDDEN_NAMES = re.compile(r"(^|_)(utils?|helpers?|common|misc)(_|\.)")

# Reasoned exceptions: path -> why.
FOLDER_SIZE_EXCEPTIONS = {
    "base": "one small file pair a noun; a second level would only lengthen every include of the project",
}


def git_files(root):
    listed = subprocess.run(["git", "-C", root, "ls-files"], capture_output=True, text=True, check=False)
    if listed.returncode == 0 and listed.stdout:
        return [path for path in listed.stdout.splitlines() if os.path.exists(os.path.join(root, path))]
    found = []
    for folder, _, names in os.walk(root):
        relative = os.path.relpath(folder, root)
        if relative.split(os.sep)[0] in ("build", "runs", ".git"):
            continue
        found += [os.path.normpath(os.path.join(relative, name)) for name in names]
    return found


def includes(text):
    return re.findall(r'^\s*#\s*include\s+["<]([^">]+)[">]', text, flags=re.MULTILINE)


def check_includes(path, text, report):
    folder = path.split("/")[0]
    if folder not in LAYERS:
        report(f"{path}: folder {folder} has no layer in DESIGN's order")
        return
    for header in includes(text):
        target = "proto" if header.startswith("leeway/v1/") else header.split("/")[0] if "/" in header else None
        if target in LAYERS and target != folder:
            lower = LAYERS[target] < LAYERS[folder]
            if not lower and (folder, target) not in SAME_LAYER:
                report(f"{path}: includes {header}: {target} is not below {folder}")
        if TORCH.match(header) and folder in TORCH_FREE:
            report(f"{path}: includes {header}: {folder} is free of torch")
        if header in HEAVY_TORCH:
            report(f"{path}: includes {header}: use per-operator headers")
        if GRPC.search(header):
            allowed = folder == "rpc" or re.search(r"_(service|client)(_test)?\.cc$", path) or folder in ("tests", "benchmarks")
            if not allowed:
                report(f"{path}: includes {header}: gRPC is shown only in rpc/ and in *_service.cc and *_client.cc")
        if CUDA.match(header) and not path.startswith(CUDA_FOLDERS):
            report(f"{path}: includes {header}: CUDA and NCCL only in {', '.join(CUDA_FOLDERS)}")


def check_file(path, text, report, warn):
    lines = text.count("\n")
    if lines > MAX_FILE_LINES:
        report(f"{path}: {lines} lines, the limit is {MAX_FILE_LINES}")
    elif lines > WARN_FILE_LINES:
        warn(f"{path}: {lines} lines, split it before it passes {MAX_FILE_LINES}")
    if FORBIDDEN_NAMES.search(os.path.basename(path)):
        report(f"{path}: name a file after what it holds, not utils, helpers or common")
    if path.endswith(".h"):
        guard = "LEEWAY_" + re.sub(r"[^A-Za-z0-9]", "_", path).upper() + "_"
        if f"#ifndef {guard}" not in text:
            report(f"{path}: header guard should be {guard}")
    if path.endswith("_test.cc") and re.search(r"sleep_for|SleepFor|usleep|absl::Sleep|\bsleep\(", text):
        report(f"{path}: sleeps in a unit test")
    if re.search(r"\b(TODO|FIXME|XXX|HACK)\b", text):
        report(f"{path}: unfinished business marked in the code")
    if path.split("/")[0] in TORCH_FREE and re.search(r"\bstd::mutex\b|absl::Mutex\b", text) and path != "base/mutex.h":
        report(f"{path}: use leeway::Mutex, which is annotated")


def main():
    root = sys.argv[1]
    breaches, warnings = [], []
    files = git_files(root)
    sources = [f for f in files if f.endswith((".h", ".cc", ".cu")) and "/" in f]
    line_counts, test_lines, product_lines, per_folder = {}, {}, {}, {}
    for path in sources:
        with open(os.path.join(root, path), encoding="utf-8") as file:
            text = file.read()
        check_includes(path, text, breaches.append)
        check_file(path, text, breaches.append, warnings.append)
        top = path.split("/")[0]
        count = text.count("\n")
        if re.search(r"_test(_[a-z]+)?\.(h|cc)$", path):
            test_lines[top] = test_lines.get(top, 0) + count
        elif top not in ("tests", "benchmarks", "examples") and not os.path.basename(path).startswith("fake_"):
            line_counts[path] = count
            if not path.endswith("_main.cc"):
                product_lines[top] = product_lines.get(top, 0) + count
    for path in files:
        if path.startswith("tests/") and path.endswith(".py"):
            with open(os.path.join(root, path), encoding="utf-8") as file:
                test_lines["tests"] = test_lines.get("tests", 0) + file.read().count("\n")
        if path.endswith((".h", ".cc", ".cu", ".py", ".proto")):
            folder = os.path.dirname(path)
            per_folder[folder] = per_folder.get(folder, 0) + 1
    for folder, count in sorted(per_folder.items()):
        if count > MAX_FOLDER_FILES and folder not in FOLDER_SIZE_EXCEPTIONS:
            breaches.append(f"{folder}: {count} files, the limit is {MAX_FOLDER_FILES}")
    median = statistics.median(line_counts.values()) if line_counts else 0
    if median > MAX_MEDIAN_LINES:
        breaches.append(f"median source file has {median} lines, the limit is {MAX_MEDIAN_LINES}")
    all_tests, all_product = sum(test_lines.values()), sum(product_lines.values())
    if all_product and all_tests / all_product < MIN_TEST_RATIO:
        breaches.append(f"{all_tests} test lines for {all_product} source lines: ratio below {MIN_TEST_RATIO}")
    for folder in sorted({f.split("/")[0] for f in files if "/" in f and not f.startswith(".")} - {"docs", "configs"}):
        readme = os.path.join(root, folder, "README.md")
        if not os.path.exists(readme):
            breaches.append(f"{folder}: no README.md")
        else:
            with open(readme, encoding="utf-8") as file:
                lines = len(file.readlines())
            if lines > MAX_README_LINES:
                breaches.append(f"{folder}/README.md: {lines} lines, the limit is {MAX_README_LINES}")
    for warning in warnings:
        print("warning:", warning)
    for breach in breaches:
        print("breach:", breach)
    print(f"{len(sources)} files checked, median {median} lines, {len(breaches)} breaches")
    sys.exit(1 if breaches else 0)


main()
