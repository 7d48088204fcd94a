#!/usr/bin/env python3
"""tidy.py - holds the sources to the rules of the house that a compiler does not see.

    tools/tidy.py [FOLDER]     prints `file:line: words` for each slip; status 1 if any
    tools/tidy.py --self-test  the canary: feeds each rule something bad, and something
                               good, and fails unless it tells them apart

A rule is a generator over a Tree, from path to text, so that the canary can make trees
up. Words that must not stand in a source are spelt here in two halves.
"""
import ast
import fnmatch
import os
import re
import subprocess
import sys

WIDTH_MAX = 88
FUNCTION_LINES_MAX = 70
FILE_LINES_MAX = 600

# What the build picks up by pattern; CMakeLists.txt says the same in its globs.
BUILT = ["src/*.c", "src/device/*.c", "resources/*.c", "tools/weir*.c",
         "tests/test_*.c", "tests/model_*.c", "tests/sweep_*.c", "tests/fuzz_*.c",
         "tests/check_*.c", "tests/conformance.c", "tests/stress.c", "tests/support*.c",
         "tests/test_*.py"]
# What people and their tools look for by name.
KNOWN = ["README.md", "LICENSE", "CMakeLists.txt", "*/CMakeLists.txt",
         "CMakePresets.json", ".gitignore", ".clang-format", ".editorconfig", ".ci/run"]


class Tree(dict):
    """Paths, with slashes, relative to the top; and the text of each file."""

    def of_kind(self, *kinds):
        return [path for path in sorted(self) if kind_of(path, self[path]) in kinds]

    def lines(self, path):
        return self[path].split("\n")


def kind_of(path, text):
    """c, h, py, sh, cmake, or other; a script without a suffix tells by its #! line."""
    name = os.path.basename(path)
    suffix = os.path.splitext(name)[1]
    kinds = {".c": "c", ".h": "h", ".cc": "c", ".hpp": "h", ".py": "py",
             ".sh": "sh", ".cmake": "cmake"}
    if name == "CMakeLists.txt":
        return "cmake"
    if suffix in kinds:
        return kinds[suffix]
    first = text.split("\n", 1)[0]
    if first.startswith("#!"):
        return "py" if "python" in first else "sh"
    return "other"


SOURCES = ("c", "h", "py", "sh", "cmake")


def is_under(path, *folders):
    return any(path.startswith(folder + "/") for folder in folders)


def is_library(path):
    return is_under(path, "src", "resources")


# Comments and the insides of literals, in this order: what opens first wins.
C_NOISE = re.compile(r"""/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'""",
                     re.DOTALL)


def code_of(text):
    """C without comments, and with empty literals; lines keep their numbers."""
    def blank(match):
        word = match.group()
        if word[0] in "\"'":
            return word[0] * 2
        return " " + "\n" * word.count("\n")
    return C_NOISE.sub(blank, text)


# --- rules on text ---------------------------------------------------------------

def rule_width(tree):
    for path in tree.of_kind(*SOURCES):
        for number, line in enumerate(tree.lines(path), 1):
            if len(line) > WIDTH_MAX:
                yield path, number, f"{len(line)} columns; {WIDTH_MAX} is the most"


def rule_blanks(tree):
    for path in tree.of_kind(*SOURCES):
        lines = tree.lines(path)
        for number, line in enumerate(lines, 1):
            if "\t" in line:
                yield path, number, "a tab; indent with spaces"
            if line != line.rstrip():
                yield path, number, "blanks at the end of the line"
        if lines[-1] != "":
            yield path, len(lines), "the last line has no end"
        elif len(lines) > 1 and lines[-2] == "":
            yield path, len(lines) - 1, "empty lines at the end of the file"


def rule_ascii(tree):
    for path in tree.of_kind(*SOURCES):
        for number, line in enumerate(tree.lines(path), 1):
            if not line.isascii():
                odd = next(c for c in line if not c.isascii())
                yield path, number, f"{odd!a} is not ASCII"


def rule_file_length(tree):
    for path in tree.of_kind("c", "h", "py", "sh"):
        count = len(tree.lines(path)) - 1
        if count > FILE_LINES_MAX:
            yield (path, count, f"{count} lines; {FILE_LINES_MAX} is the most; "
                                "is there a second idea in it?")


def functions_of_c(text):
    """Name, first line and last line of each function, by the house's layout: the
    closing brace alone in the first column, the opening one there too or after `)`."""
    start = None
    lines = code_of(text).split("\n")
    for number, line in enumerate(lines, 1):
        if start is None and (line == "{" or re.match(r"\w.*\)\s*\{$", line)):
            start = number
            while line == "{" and start > 1 and signature_goes_on(lines[start - 2]):
                start -= 1
        elif start is not None and line.startswith("}"):
            signature = " ".join(lines[start - 1:number])
            found = re.search(r"(\w+)\s*\(", signature)
            yield (found.group(1) if found else "?"), start, number
            start = None


def signature_goes_on(line):
    return line.strip() != "" and line[0] not in "#}" and not line.endswith(";")


def functions_of_py(text):
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node.lineno, node.end_lineno


def functions_of_sh(text):
    start = None
    for number, line in enumerate(text.split("\n"), 1):
        opening = re.match(r"(\w+)\(\)\s*\{$", line)
        if opening:
            start, name = number, opening.group(1)
        elif start and line == "}":
            yield name, start, number
            start = None


def rule_function_length(tree):
    finders = {"c": functions_of_c, "h": functions_of_c, "py": functions_of_py,
               "sh": functions_of_sh}
    for path in tree.of_kind(*finders):
        for name, start, end in finders[kind_of(path, tree[path])](tree[path]):
            if end - start + 1 > FUNCTION_LINES_MAX:
                yield (path, start, f"{name} is {end - start + 1} lines long; "
                                    f"{FUNCTION_LINES_MAX} is the most")


# --- rules on words --------------------------------------------------------------

def call(*names):
    return r"\b(?:%s)\s*\(" % "|".join(names)


UNFINISHED = r"\b(?:TO" r"DO|FIX" r"ME|XX" r"X|HA" r"CK)\b"
LOCAL_PATH = r"(?<![\w.$}\]*-])/(?:work|root|home|Users)/\w"

# Which pattern is refused, in which kinds of file, where, but where not, and why.
# Of C only the code is looked at where the pattern is of code.
BANNED_TEXT = [
    (UNFINISHED, "finish it, or put it into an issue"),
    (LOCAL_PATH, "a path of one machine"),
]
BANNED_CODE = [
    (call("strcpy", "strcat", "sprintf", "vsprintf", "gets", "strtok", "alloca"),
     (), (), "does not know how long its target is, or keeps state: use another"),
    (call("malloc", "calloc", "realloc", "free", "aligned_alloc", "posix_memalign",
          "strdup", "strndup", "asprintf", "vasprintf"),
     ("src", "resources"), ("src/host.c", "src/status.c", "src/device/emulated*",
                           "src/device/cuda_memory.c"),
     "the library's memory comes from weir__host_alloc alone"),
    (call(r"pthread_mutex_\w+", r"pthread_rwlock_\w+", r"pthread_spin_\w+"),
     ("src", "resources"), ("src/sync.[ch]", "src/status.c"),
     "locks have ranks: use weir__mutex"),
    (call("exit", "_exit", "_Exit", "quick_exit", "atexit", "longjmp"),
     ("src", "resources"), (), "a library leaves the end of the process alone"),
    (call("abort"), ("src", "resources"), ("src/status.c", "src/misuse.c"),
     "stop by WEIR_CHECK or weir__misuse, which say why"),
    (call("printf", "fprintf", "vfprintf", "puts", "fputs", "putchar", "perror"),
     ("src", "resources"), ("src/status.c", "src/misuse.c"),
     "the library prints nothing unless asked: use weir__fail"),
    (call("assert"), ("src", "resources", "tests"), (),
     "use WEIR_CHECK or WEIR_ASSERT in the library, cmocka's in tests"),
    (call("sleep", "usleep", "nanosleep", "clock_nanosleep"),
     ("src", "resources", "tests"), ("tests/gpu/kernels_standin.c",),
     "no sleeps: wait for what is meant"),
    (r"^\s*#\s*if\s+0\b", (), (), "code that is never compiled"),
]


def rule_banned_text(tree):
    for path in tree.of_kind(*SOURCES, "other"):
        for number, line in enumerate(tree.lines(path), 1):
            for pattern, why in BANNED_TEXT:
                found = re.search(pattern, line)
                if found:
                    yield path, number, f"`{found.group()}`: {why}"


def rule_banned_code(tree):
    for path in tree.of_kind("c", "h"):
        rules = [(re.compile(pattern, re.MULTILINE), why)
                 for pattern, where, but_not, why in BANNED_CODE
                 if (not where or is_under(path, *where))
                 and not any(fnmatch.fnmatch(path, name) for name in but_not)]
        for number, line in enumerate(code_of(tree[path]).split("\n"), 1):
            for pattern, why in rules:
                found = pattern.search(line)
                if found:
                    yield path, number, f"`{found.group().strip()}`: {why}"


# --- rules on the house ----------------------------------------------------------

INCLUDE = re.compile(r'^\s*#\s*include\s+["<]([^">]+)[">]', re.MULTILINE)
OUR_INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')


def rule_opening(tree):
    for path in tree.of_kind("c", "h"):
        first = tree.lines(path)[0]
        if not first.startswith("/*") or os.path.basename(path) not in first:
            yield path, 1, "a file opens with its name and what it is"


def rule_header(tree):
    for path in tree.of_kind("h"):
        code = code_of(tree[path])
        guard = re.match(r"\s*#ifndef (\w+)\n#define (\w+)\s", code)
        if not guard or guard.group(1) != guard.group(2):
            yield path, 1, "no include guard"
        if is_under(path, "include"):
            name = re.sub(r"\W", "_", os.path.relpath(path, "include")).upper()
            if guard and guard.group(1) != name:
                yield path, 1, f"the include guard is {guard.group(1)}, not {name}"
            if "WEIR_API" in code and not re.search(r'extern ""', code):
                yield path, 1, 'functions, and no extern "C"'


OPTION_TYPES = ("weir/async.h", "weir/managed.h")
# Resources that are made of another one, which they know by its public header alone.
MADE_OF = {"fixed_size": "weir/pool.h", "binning": "weir/fixed_size.h",
           "arena": "weir/pool.h", "growable": "weir/pool.h"}


def rule_layers(tree):
    """Arrows run one way: tools and bench see include; src/device knows no resource; no
    resource knows another."""
    resources = {os.path.basename(path)[:-2] for path in tree
                 if is_under(path, "resources") and path.endswith(".c")}
    for path in tree.of_kind("c", "h"):
        own = os.path.basename(path).split(".")[0]
        for number, line in enumerate(tree.lines(path), 1):
            found = OUR_INCLUDE.match(line)
            if not found:
                continue
            name = found.group(1)
            stem = os.path.basename(name)[:-2]
            beside = os.path.dirname(path) + "/" + name in tree
            if is_under(path, "tools", "bench"):
                if not name.startswith("weir/") and not beside:
                    yield path, number, f"{name} is not public"
            elif name in ("device/device.h", "weir/device.h"):
                pass  # of the device itself, not of the resource with its name
            elif is_under(path, "resources") and MADE_OF.get(own) == name:
                pass
            elif path == "src/device/device.h" and name in OPTION_TYPES:
                pass  # primitives take the same types
            elif is_under(path, "src/device", "resources") and stem in resources:
                if own.split("_")[0] != stem.split("_")[0]:
                    yield path, number, f"{name} is a resource of its own"


def rule_dead_file(tree):
    included = {(path, os.path.basename(name)) for path in tree.of_kind("c", "h")
                for name in INCLUDE.findall(tree[path])}
    for path in sorted(tree):
        name = os.path.basename(path)
        if any(fnmatch.fnmatch(path, pattern) for pattern in KNOWN):
            continue
        if any(fnmatch.fnmatch(path, pattern) and path.count("/") == pattern.count("/")
               for pattern in BUILT):
            continue
        if path.endswith(".h"):
            alive = any(who != path and what == name for who, what in included)
        else:
            alive = is_mentioned(tree, path)
        if not alive:
            yield path, 1, "nothing includes, builds or mentions this file"


def is_mentioned(tree, path):
    """By its path, by its name if that has a suffix, by `folder/*.suffix` or import."""
    folder, name = os.path.split(path)
    suffix = os.path.splitext(name)[1]
    words = [path]
    if suffix:
        words += [name, os.path.basename(folder) + "/*" + suffix]
    if suffix == ".py":
        words.append("import " + name[:-3])
    pattern = r"(?<![\w-])(?:%s)(?![\w-]|\.\w)" % "|".join(map(re.escape, words))
    return any(other != path and any(word in text for word in words)  # which is quick
               and re.search(pattern, text) for other, text in tree.items())


RULES = [rule_width, rule_blanks, rule_ascii, rule_file_length, rule_function_length,
         rule_banned_text, rule_banned_code, rule_opening, rule_header, rule_layers,
         rule_dead_file]


# --- the tree on disk ------------------------------------------------------------

def paths_of(top):
    """What git tracks or would track; without git, all but hidden and built things."""
    try:
        listed = subprocess.run(
            ["git", "-C", top, "ls-files", "-z", "-co", "--exclude-standard"],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, check=True).stdout
        return [path for path in os.fsdecode(listed).split("\0") if path]
    except (OSError, subprocess.CalledProcessError):
        pass
    found = []
    for folder, folders, names in os.walk(top):
        folders[:] = [name for name in folders if name in (".ci",)
                      or not name.startswith((".", "build", "__pycache__"))]
        found += [os.path.relpath(os.path.join(folder, name), top) for name in names]
    return found


def read_tree(top):
    tree = Tree()
    for path in paths_of(top):
        full = os.path.join(top, path)
        if not os.path.isfile(full):
            continue
        with open(full, "rb") as file:
            data = file.read()
        tree[path] = "" if b"\0" in data else data.decode("utf-8", "replace")
    return tree


def check(top):
    tree = read_tree(top)
    if not any(is_library(path) for path in tree):
        print(f"tidy: no sources under {top}", file=sys.stderr)
        return 2
    slips = sorted(set(slip for rule in RULES for slip in rule(tree)))
    for path, number, words in slips:
        print(f"{path}:{number}: {words}")
    print(f"tidy: {len(tree)} files, {len(RULES)} rules, {len(slips)} slips")
    return 1 if slips else 0


def main(arguments):
    if arguments == ["--self-test"]:
        sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
        import tidy_canary
        return tidy_canary.run(sys.modules[__name__])
    if len(arguments) > 1 or (arguments and arguments[0].startswith("-")):
        print("usage: tidy.py [FOLDER | --self-test]", file=sys.stderr)
        return 2
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return check(arguments[0] if arguments else here)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
