"""gpu_check_machine - which machine this is, and what it takes to have no network.
"""
import glob
import hashlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import time

# What building the tests needs besides CUDA's own and a compiler, as Debian calls it.
PACKAGES = ("libcmocka0", "libcmocka-dev", "zlib1g", "zlib1g-dev", "pkgconf",
            "pkgconf-bin", "libpkgconf3")
FOLDER = ".gpu"


def said(*command):
    """The output of a program that only tells something; "" where it does not."""
    try:
        return subprocess.run(command, stdin=subprocess.DEVNULL, timeout=20,
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                              text=True, errors="replace", check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return ""


def text_of(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def python_has(module):
    return importlib.util.find_spec(module) is not None


def python_with(module):
    """A Python that has it: this one, or else the system's; None if neither has."""
    for python in (sys.executable, "/usr/bin/python3"):
        if said(python, "-c", f"import {module}; print(1)"):
            return python
    return None


def module_version(name):
    try:
        import importlib.metadata
        return importlib.metadata.version(name)
    except ImportError:
        return ""


def sandbox():
    """What stands between programs and the machine, as far as it shows."""
    if "gvisor" in (said("dmesg") + text_of("/proc/version")).lower():
        return "gVisor"
    if re.match(r"4\.4\.0$", platform.release()):
        return "gVisor, by its kernel's version"
    if "firecracker" in platform.release() or "-fc-" in platform.release():
        return "Firecracker"
    if os.path.exists("/.dockerenv") or "docker" in text_of("/proc/1/cgroup"):
        return "container"
    return "none seen"


def sources_hash(top):
    """Tells one state of the sources from another where git cannot."""
    found = hashlib.sha256()
    for folder in ("include", "src", "resources", "tools", "tests", "bench"):
        for path in sorted(glob.glob(os.path.join(top, folder, "**"), recursive=True)):
            if os.path.isfile(path) and "__pycache__" not in path:
                found.update(os.path.relpath(path, top).encode())
                with open(path, "rb") as file:
                    found.update(file.read())
    return found.hexdigest()[:16]


def describe(top, stand_in):
    """The machine, the commit and the time, for the head of a report."""
    gpu = said("nvidia-smi", "--query-gpu=name,driver_version,memory.total",
               "--format=csv,noheader").split("\n")[0].split(", ")
    processor = re.search(r"^model name\s*:\s*(.*)$", text_of("/proc/cpuinfo"),
                          re.MULTILINE)
    nvcc = re.search(r"release ([\d.]+)", said("nvcc", "--version"))
    commit = said("git", "-C", top, "rev-parse", "HEAD")
    if commit and said("git", "-C", top, "status", "--porcelain"):
        commit += " with changes"
    return {
        "stand_in": stand_in,
        "gpu": "none: the stand-in" if stand_in else
               gpu[0] or ("not named" if os.path.exists("/dev/nvidia0") else "none"),
        "driver": gpu[1] if len(gpu) > 2 and not stand_in else "none",
        "gpu_memory": gpu[2] if len(gpu) > 2 and not stand_in else "none",
        "cuda": nvcc.group(1) if nvcc else "no nvcc",
        "processor": processor.group(1) if processor else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
        "sandbox": sandbox(),
        "python": platform.python_version(),
        "torch": module_version("torch") or "not there",
        "cupy": next((module_version(name) for name in
                      ("cupy-cuda13x", "cupy-cuda12x", "cupy") if module_version(name)),
                     "not there"),
        "jax": module_version("jax") or "not there",
        "numba": module_version("numba") or "not there",
        "compute_sanitizer": "there" if shutil.which("compute-sanitizer")
                             else "not there",
        "commit": commit or "unknown",
        "sources": sources_hash(top),
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
    }


# --- packages carried along ------------------------------------------------------

def prepare(top):
    """Unpacks the packages into .gpu/, movable as a whole; 0 if all went well."""
    folder = os.path.join(top, FOLDER)
    debs = os.path.join(folder, "debs")
    os.makedirs(debs, exist_ok=True)
    try:
        subprocess.run(["apt-get", "download", *PACKAGES], cwd=debs, check=True)
        for deb in sorted(glob.glob(os.path.join(debs, "*.deb"))):
            subprocess.run(["dpkg", "-x", deb, folder], check=True)
    except (OSError, subprocess.CalledProcessError) as problem:
        print(f"gpu_check: {problem}; is there a network, and has apt-get update run?")
        return 1
    shutil.rmtree(debs)
    for path in glob.glob(os.path.join(folder, "usr/share/*")):
        shutil.rmtree(path)
    make_movable(folder)
    write_pkg_config(folder)
    print(f"gpu_check: {FOLDER}/ has {', '.join(PACKAGES)}; take it along")
    return 0


PKG_CONFIG = """#!/bin/sh
root=$(cd "$(dirname "$0")/.." && pwd)
for folder in "$root"/usr/lib/*-linux-gnu; do
    LD_LIBRARY_PATH=$folder${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
done
export LD_LIBRARY_PATH
exec "$root/usr/bin/pkgconf" "$@"
"""


def write_pkg_config(folder):
    """A pkg-config that finds its own library, so that nobody else need look there; and
    the libraries of /lib beside those of /usr/lib, where programs are told to look."""
    os.makedirs(os.path.join(folder, "bin"), exist_ok=True)
    path = os.path.join(folder, "bin/pkg-config")
    with open(path, "w", encoding="utf-8") as file:
        file.write(PKG_CONFIG)
    os.chmod(path, 0o755)
    for library in glob.glob(os.path.join(folder, "lib/*-linux-gnu/*")):
        link = os.path.join(folder, "usr", os.path.relpath(library, folder))
        if not os.path.lexists(link):
            os.symlink(os.path.relpath(library, os.path.dirname(link)), link)


def make_movable(folder):
    """Links that point to /... and prefixes that are /usr become relative."""
    for place, folders, names in os.walk(folder):
        for path in (os.path.join(place, name) for name in folders + names):
            if os.path.islink(path) and os.path.isabs(os.readlink(path)):
                target = folder + os.readlink(path)
                os.remove(path)
                os.symlink(os.path.relpath(target, place), path)
            elif path.endswith(".pc"):
                up = os.path.relpath(os.path.join(folder, "usr"), place)
                text = text_of(path).replace("/usr", "${pcfiledir}/" + up)
                with open(path, "w", encoding="utf-8") as file:
                    file.write(text)


def environment(top):
    """What makes compilers and CMake look into .gpu/, if it is there."""
    root = os.path.join(top, FOLDER)
    if not os.path.isdir(root):
        return {}
    libraries = sorted(glob.glob(os.path.join(root, "usr/lib/*-linux-gnu")))

    def before(name, paths):
        return ":".join(paths + ([os.environ[name]] if os.environ.get(name) else []))
    return {
        "CMAKE_PREFIX_PATH": before("CMAKE_PREFIX_PATH", [os.path.join(root, "usr")]),
        "C_INCLUDE_PATH": before("C_INCLUDE_PATH", [os.path.join(root, "usr/include")]),
        "PKG_CONFIG_PATH": before("PKG_CONFIG_PATH",
                                  [os.path.join(path, "pkgconfig")
                                   for path in libraries]),
        "PATH": os.environ.get("PATH", "") + ":" + os.path.join(root, "bin"),
    }
