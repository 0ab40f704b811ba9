"""What PyTorch's own tests ask of attention, with and without ``saccade.torch.patch()``. ``script/outside`` runs it.

The wheel of PyTorch carries samples of its functions and modules and the checks of its test suite
(``torch.testing._internal``). :mod:`.cases` makes calls of the samples; :mod:`.values`, :mod:`.derivatives` and
:mod:`.recording` are the checks, :mod:`.checks` their list. Each runs once without the patch and once with it, and
:mod:`.differences` compares the two results. What differs must be one of the differences of :mod:`.meant`, which
``docs/torch.md`` names.
"""
