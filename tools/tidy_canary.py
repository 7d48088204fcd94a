"""tidy_canary.py - shows that each rule of tidy.py fires, and where it keeps quiet.

Each case is a rule, a tree that breaks it once for each entry, and one that keeps it.
"""
LONG = "    x();\n"
OPEN = "/* a.c - an example. */\n"
GUARDED = ("/* weir/a.h - an example. */\n#ifndef WEIR_A_H\n#define WEIR_A_H\n%s\n"
           "#endif\n")


def c_function(lines):
    return "static int\nf(int a,\n  int b)\n{\n" + LONG * (lines - 5) + "}\n"


def py_function(lines):
    return "def f():\n" + "    x()\n" * (lines - 1)


def sh_function(lines):
    return "#!/bin/sh\nf() {\n" + LONG * (lines - 2) + "}\n"


# rule: ([bad trees], [good trees])
CASES = {
    "rule_width": (
        [{"src/a.c": "x" * 89 + "\n"}, {"CMakeLists.txt": "#" * 89 + "\n"},
         {"tools/a": "#!/bin/sh\n" + "#" * 89 + "\n"}],
        [{"src/a.c": "x" * 88 + "\n"}, {"README.md": "x" * 200 + "\n"}]),
    "rule_blanks": (
        [{"a.c": "\tx\n"}, {"a.c": "x \n"}, {"a.py": "x"}, {"a.sh": "x\n\n"},
         {"a.h": "x\r\n"}],
        [{"a.c": "    x\n\ny\n"}]),
    "rule_ascii": (
        [{"a.c": "/* \u2014 */\n"}, {"a.py": "'\u00e4'\n"}],
        [{"a.c": "/* - */\n"}, {"README.md": "\u2014\n"}]),
    "rule_file_length": (
        [{"a.c": "x\n" * 601}, {"a.py": "x\n" * 601}],
        [{"a.c": "x\n" * 600}, {"README.md": "x\n" * 601}]),
    "rule_function_length": (
        [{"a.c": c_function(71)}, {"a.py": py_function(71)}, {"a.sh": sh_function(71)},
         {"a.c": "int f(void) {\n" + LONG * 69 + "}\n"},
         {"a.c": "int g(void)\n{\n}\n\n" + c_function(71)}],
        [{"a.c": c_function(70)}, {"a.py": py_function(70)}, {"a.sh": sh_function(70)},
         {"a.c": c_function(70) + "\n" + c_function(70)},
         {"a.c": "static const int t[] = {\n" + LONG * 90 + "};\n"}]),
    "rule_banned_text": (
        [{"a.c": "/* TO" "DO: more */\n"}, {"a.py": "# FIX" "ME\n"},
         {"README.md": "see /ro" "ot/x\n"}, {"tools/a": "#!/bin/sh\ncd /wo" "rk/x\n"}],
        [{"a.c": "int todo;\n"}, {"README.md": "include/weir, ../home/x\n"}]),
    "rule_banned_code": (
        [{"src/a.c": "    p = malloc(1);\n"}, {"resources/a.c": "    free (p);\n"},
         {"src/a.c": "    pthread_mutex_lock(&m);\n"}, {"tests/a.c": "strcpy(a, b);\n"},
         {"src/a.c": '    printf("x");\n'}, {"src/a.c": "    exit(1);\n"},
         {"src/a.c": "    abort();\n"}, {"tools/weir.c": "sprintf(a, b);\n"},
         {"tests/test_a.c": "    usleep(1);\n"}, {"src/a.c": "#if 0\n#endif\n"},
         {"tests/test_a.c": "    assert(a);\n"},
         {"src/a.c": 'a = "/*";\n    b = malloc(1); /* "x" */\n'}],
        [{"src/host.c": "    p = malloc(1);\n"}, {"tests/a.c": "    p = malloc(1);\n"},
         {"src/a.c": "/* malloc() is not used;\n * free(p) neither */\n"},
         {"src/a.c": '    weir__fail(1, "malloc(1)");\n'},
         {"src/a.c": "    weir__host_free(p);\n    ops->free_now(p);\n"},
         {"src/sync.c": "    pthread_mutex_lock(&m);\n"},
         {"src/a.c": "static_assert(1, \"\"); WEIR_ASSERT(1, \"\");\n"},
         {"tools/weir.c": '    printf("x");\n'}]),
    "rule_opening": (
        [{"src/a.c": "int a;\n"}, {"src/a.c": "/* b.c - another. */\n"},
         {"include/weir/a.h": "#ifndef A\n"}],
        [{"src/a.c": OPEN}, {"include/weir/a.h": GUARDED % ""}]),
    "rule_header": (
        [{"src/a.h": "/* a.h */\nint a;\n"},
         {"src/a.h": "#ifndef A_H\n#define B_H\n#endif\n"},
         {"include/weir/b.h": GUARDED % ""}, {"include/weir/a.hpp": GUARDED % ""},
         {"include/weir/a.h": GUARDED % "WEIR_API int f(void);"}],
        [{"include/weir/a.h": GUARDED % "typedef int a;"},
         {"include/weir/a.hpp": (GUARDED % "").replace("A_H", "A_HPP")},
         {"include/weir/a.h": GUARDED % 'extern "C" {\nWEIR_API int f(void);\n}'}]),
    "rule_layers": (
        [{"resources/a.c": '#include "weir/b.h"\n', "resources/b.c": ""},
         {"resources/a.c": '#include "weir/pool.h"\n', "resources/pool.c": ""},
         {"resources/fixed_size.c": '#include "pool_hit.h"\n',
          "resources/pool_hit.c": ""},
         {"src/device/a.c": '#include "weir/b.h"\n', "resources/b.c": ""},
         {"tools/weir.c": '#include "internal.h"\n', "src/internal.h": ""}],
        [{"resources/a.c": '#include "weir/a.h"\n#include "internal.h"\n'},
         {"resources/pool_heap.c": '#include "weir/pool.h"\n', "resources/pool.c": ""},
         {"resources/fixed_size.c": '#include "weir/pool.h"\n', "resources/pool.c": ""},
         {"tools/weir.c": '#include "weir/a.h"\n#include "weir_cli.h"\n',
          "tools/weir_cli.h": ""}]),
    "rule_dead_file": (
        [{"src/a.h": '#include "a.h"\n'}, {"tests/a.c": "", "README.md": "a.cc xa.c\n"},
         {"tools/a": "#!/bin/sh\n", "README.md": "a\n"}, {"src/x/a.c": ""},
         {"bench/t/a.gz": "", "README.md": "t/*.csv\n"}],
        [{"src/a.h": "", "src/b.c": '#include "a.h"\n'}, {"src/a.c": ""},
         {"tests/clients/a.c": "", "tests/clients/run": "cc a.c\n",
          "README.md": "tests/clients/run\n"},
         {"tools/a": "#!/bin/sh\n", "README.md": "run `./tools/a`.\n"},
         {"tools/a.py": "", "tools/b.py": "import a\n", "README.md": "tools/b.py\n"},
         {"bench/t/a.gz": "", "README.md": "t/*.gz\n"}]),
}


def run(tidy):
    """Prints each surprise; answers 1 if there was any."""
    surprises = []
    names = [rule.__name__ for rule in tidy.RULES]
    for name in sorted(set(names) ^ set(CASES)):
        surprises.append(f"{name} is not both a rule and a case")
    count = 0
    for rule in tidy.RULES:
        bad, good = CASES.get(rule.__name__, ([], []))
        for trees, wanted in ((bad, True), (good, False)):
            for tree in trees:
                count += 1
                slips = list(rule(tidy.Tree(tree)))
                if bool(slips) != wanted:
                    surprises.append(f"{rule.__name__}: {tree!r:.200} gave {slips}")
    for surprise in surprises:
        print(surprise)
    print(f"tidy: {count} canaries, {len(surprises)} surprises")
    return 1 if surprises or not count else 0
