"""Adapters of PEFT on saccade.torch.MultiheadAttention: they train as on PyTorch's module."""

import copy

import pytest

torch = pytest.importorskip("torch", reason="saccade.torch needs PyTorch")
peft = pytest.importorskip("peft", reason="PEFT is not installed")

from saccade.torch import MultiheadAttention  # noqa: E402
from torch import nn  # noqa: E402


class Model(nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.attention = kind(32, 4, batch_first=True)
        self.head = nn.Linear(32, 3)

    def forward(self, x, padding, need_weights):
        o, weights = self.attention(x, x, x, key_padding_mask=padding, need_weights=need_weights)
        return self.head(o), weights


@pytest.mark.parametrize("need_weights", [False, True])
def test_lora_trains_as_on_pytorchs_module(need_weights):
    torch.manual_seed(0)
    theirs = Model(nn.MultiheadAttention)
    ours = Model(MultiheadAttention)
    ours.load_state_dict(theirs.state_dict())
    x, target = torch.randn(4, 10, 32), torch.randn(4, 10, 3)
    padding = torch.arange(10) >= torch.tensor([10, 8, 3, 5])[:, None]
    config = peft.LoraConfig(r=4, target_modules=["attention"], init_lora_weights=False)
    adapted = []
    for model in (theirs, ours):
        torch.manual_seed(1)  # of the adapters
        adapted.append(peft.get_peft_model(copy.deepcopy(model), config))
    losses = [[], []]
    for model, found in zip(adapted, losses):
        learnt = [p for p in model.parameters() if p.requires_grad]
        optimizer = torch.optim.SGD(learnt, lr=0.1)
        for _ in range(5):
            loss = (model(x, padding, need_weights)[0] - target).square().mean()
            optimizer.zero_grad()
            loss.backward()
            assert all(p.grad is not None and p.grad.any() for p in learnt)
            optimizer.step()
            found.append(loss.item())
    assert losses[0][-1] < losses[0][0]
    torch.testing.assert_close(losses[1], losses[0])
    for (name, a), (_, b) in zip(adapted[0].named_parameters(), adapted[1].named_parameters()):
        torch.testing.assert_close(b, a, msg=lambda text, name=name: f"{name}: {text}")
    merged = [model.merge_and_unload().eval() for model in adapted]
    with torch.no_grad():
        torch.testing.assert_close(merged[1](x, padding, False)[0], merged[0](x, padding, False)[0])
