"""Checks of a page in a browser, all of which run: what failed is in `failures`."""

failures = []


def check(condition, text):
    print(("  good  " if condition else "  WRONG ") + text)
    if not condition:
        failures.append(text)
