"""Compares saccade with other libraries on this machine: ``script/bench --peers``.

- ``shapes.txt``, ``caches.txt``: the problems, one per line; :mod:`peers.problem` reads them.
- ``*_peer.py``: one per library, including saccade; :mod:`peers.peer` describes them. A new file adds a library.
- :mod:`peers.inputs`, :mod:`peers.reference`: the inputs of a problem, and the expected results.
- :mod:`peers.process`, :mod:`peers.worker`: the process of a peer; :mod:`peers.timing`: the measurements, and
  ``fixed_loop.cpp``, by which disturbed ones are known.
- :mod:`peers.report`, :mod:`peers.curves`, :mod:`peers.plots`: the page of a processor in docs/benchmarks, the tables
  of its curves and its pictures; :mod:`peers.pages`: the list of these pages, and README's table and chart.
"""
