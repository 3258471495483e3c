"""Seconds of a run of .ci/run, by part and by suite: `times.py FOLDER` reads the parts and ctest's
reports there, prints both and writes FOLDER/times.json.
"""
import datetime
import glob
import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree

SUITE_SECONDS_MOST = 60  # a longer suite is cut into parts, see tests/list_suites.cmake


def cpu_name():
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:
            found = re.search(r"^model name\s*:\s*(.*)$", file.read(), re.M)
    except OSError:
        found = None
    return found.group(1) if found else os.uname().machine


def commit():
    result = subprocess.run(["git", "rev-parse", "HEAD"], stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, universal_newlines=True)
    return result.stdout.strip()


def read_parts(folder):
    parts = []
    with open(os.path.join(folder, "parts"), encoding="utf-8") as file:
        for line in file.read().splitlines():
            name, seconds, result = line.split("\t")
            parts.append({"name": name, "seconds": int(seconds), "result": result})
    return parts


def read_suites(folder):
    suites = []
    for report in sorted(glob.glob(os.path.join(folder, "*.xml"))):
        part = os.path.basename(report)[:-4]
        for case in xml.etree.ElementTree.parse(report).getroot().iter("testcase"):
            suites.append({"part": part, "name": case.get("name"),
                           "seconds": round(float(case.get("time", 0)), 2),
                           "result": "passed" if case.get("status") == "run" else "failed"})
    return sorted(suites, key=lambda suite: -suite["seconds"])


def main():
    folder = sys.argv[1]
    parts, suites = read_parts(folder), read_suites(folder)
    with open(os.path.join(folder, "times.json"), "w", encoding="utf-8") as file:
        json.dump({"commit": commit(), "cpu": cpu_name(), "cores": os.cpu_count(),
                   "time": datetime.datetime.now(datetime.timezone.utc).isoformat("T", "seconds"),
                   "parts": parts, "suites": suites}, file, indent=1)
    print("seconds by suite (those below 1 s are in times.json):")
    for suite in suites:
        if suite["seconds"] >= 1:
            print("%8.1f  %-8s %s%s" % (suite["seconds"], suite["part"], suite["name"],
                                        "" if suite["result"] == "passed" else "  FAILED"))
    print("seconds by part:")
    for part in parts:
        print("%8d  %-8s %s" % (part["seconds"], part["name"], part["result"]))
    print("%8d  together" % sum(part["seconds"] for part in parts))
    long = [suite["name"] for suite in suites
            if suite["part"] == "tests" and suite["seconds"] > SUITE_SECONDS_MOST]
    if long:
        print("over %d s, to be cut into parts: %s" % (SUITE_SECONDS_MOST, " ".join(long)))


if __name__ == "__main__":
    main()
