"""Reads what a suite of attacks printed, with one test at a time, and prints how many attempts there were and how many held.

Between the lines `test NAME ...` and its result stand the attempts of that test; a test without any is one attempt itself.
"""

import re
import sys


def count(text):
    tried = held = 0
    # The name and its result stand on one line, unless the test printed something.
    for body in re.split(r"^test (?=\S+ \.\.\. )", text, flags=re.M)[1:]:
        passed = re.search(r"(^| \.\.\. )ok$", body, re.M) is not None
        attempts = re.findall(r"attack (held|BROKEN): ", body)
        tried += max(len(attempts), 1)
        broken = attempts.count("BROKEN")
        if attempts:
            held += len(attempts) - max(broken, 0 if passed else 1)
        elif passed:
            held += 1
    return tried, held


if __name__ == "__main__":
    print(*count(sys.stdin.read()))
