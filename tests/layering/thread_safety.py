"""Runs clang's thread-safety analysis over the product's sources, from a compilation database.

Usage: thread_safety.py build/release/compile_commands.json
"""

import concurrent.futures
import json
import os
import shlex
import subprocess
import sys

FOLDERS = ("base", "formats", "collective", "tokenizer", "envs", "rpc", "queue", "weightsync", "rollout", "trainer", "launch")


def analyse(entry):
    words = shlex.split(entry["command"])
    flags = []
    position = 0
    while position < len(words):
        word = words[position]
        if word == "-isystem":
            flags += [word, words[position + 1]]
            position += 1
        elif word.startswith(("-I", "-D", "-std", "-mavx", "-mfma")):
            flags.append(word)
        position += 1
    command = ["clang++-14", "-fsyntax-only", "-Wthread-safety", "-Werror", *flags, entry["file"]]
    result = subprocess.run(command, cwd=entry["directory"], capture_output=True, text=True, check=False)
    return entry["file"], result.returncode, result.stderr


def main():
    database = sys.argv[1]
    root = os.getcwd()
    with open(database, encoding="utf-8") as file:
        entries = [
            entry
            for entry in json.load(file)
            if os.path.relpath(entry["file"], root).split(os.sep)[0] in FOLDERS
            and not entry["file"].endswith("_test.cc")
        ]
    if not entries:
        sys.exit(f"{database}: no source of the product in it")
    failures = 0
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for path, code, errors in pool.map(analyse, entries):
            if code != 0:
                failures += 1
                print(f"{path}:\n{errors}")
    print(f"{len(entries)} files analysed, {failures} with findings")
    sys.exit(1 if failures else 0)


main()
