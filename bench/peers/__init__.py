"""saccade beside what people use now, on the machine at hand: ``script/bench --peers``.

- ``shapes.txt``: what is compared, a problem a line; :mod:`peers.problem` reads it.
- ``*_peer.py``: a rival each, and saccade itself; :mod:`peers.peer` says what such a file has. A new file: a new rival.
- :mod:`peers.inputs`, :mod:`peers.reference`: the numbers of a problem, and what has to come out.
- :mod:`peers.worker`: the process in which a peer lives; :mod:`peers.timing`, :mod:`peers.memory`: what is asked of it.
- :mod:`peers.report`, :mod:`peers.plots`: docs/benchmarks.md and its pictures.
"""
